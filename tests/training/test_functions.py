"""What Python sources give to train with."""

from training.functions import functions_of

SOURCE = '''
class Rows:
    def is_sorted(self, rows, *, key=None):
        """Tell whether all rows are in sorted order. Empty ones are.

        :param rows: what to look at
        """
        keys = [key(row) for row in rows]
        return keys == sorted(keys)

    def undocumented(self):
        a = 1
        b = 2
        return a + b

    def only_documented(self):
        """Say what a subclass should do, in a sentence

        and nothing else.
        """
'''


def test_a_function_is_asked_for_by_its_first_sentence_and_by_its_name() -> None:
    (function,) = functions_of(SOURCE)

    assert function.sentence == "Tell whether all rows are in sorted order"
    assert function.asked == "python is sorted"


def test_the_question_does_not_stand_in_the_bare_function() -> None:
    (function,) = functions_of(SOURCE)

    assert "sorted order" in function.whole
    assert "sorted order" not in function.bare
    assert function.bare.splitlines() == [
        "def is_sorted(self, rows, *, key=None):",
        "    keys = [key(row) for row in rows]",
        "    return keys == sorted(keys)",
    ]


def test_other_languages_and_broken_sources_have_none() -> None:
    assert functions_of("fn main() {}") == []
    assert functions_of("x = '\x00'") == []

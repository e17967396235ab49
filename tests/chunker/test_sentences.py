"""Sentences of many scripts end where their readers would say."""

import itertools

import pytest
from kbmesh_chunker.sentences import sentence_ends, sentence_ends_backwards


@pytest.mark.parametrize(
    ("between", "parts"),
    [
        (" ", ["It works.", "Does it?", "It does!", "Well…", "Perhaps."]),
        (" ", ["Dr. Smith met Prof. Jones at 3.14 p.m. on the 5th.", "They spoke of J. S. Bach."]),
        (" ", ["See fig. 3, e.g. the left one.", "It shows version 2.0.1 of kbmesh."]),
        (" ", ['He said "Stop!"', "(She did not.)", "“Why?”", "Because."]),
        (" ", ["people write without capitals.", "they end their sentences too."]),
        (" ", ["Das gilt z.B. für Nr. 5 und usw. nicht.", "Am Ende steht ein Punkt."]),
        ("\n", ["1. Open the lid.", "2. Close it."]),
        ("", ["数据库迁移前必须先做备份。", "然后执行脚本！", "完成了吗？", "“好的。”", "谢谢"]),
        ("", ["これは文です。", "次の文です。"]),
        (" ", ["هل تعمل؟", "نعم، تعمل.", "حسنا"]),
        (" ", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        (" ", ["ภาษาไทยไม่มีจุด", "แต่มีช่องว่าง"]),
        (" ", ["Это т.е. пример.", "А. С. Пушкин родился в Москве."]),
    ],
)
def test_sentences(between: str, parts: list[str]) -> None:
    text = between.join(parts)
    ends = list(sentence_ends(text, 0, len(text)))
    assert ends == list(sentence_ends_backwards(text, 0, len(text)))[::-1]
    borders = sorted({0, *ends, len(text)})
    assert [text[start:end].strip() for start, end in itertools.pairwise(borders)] == parts

"""How strongly a trained model may speak."""

from training.export import SCALES, choose_scale
from training.group import Group

FUSED = (1.0, 0.9, 0.3, 0.2)


def groups(answer: int, pool: str, count: int) -> list[Group]:
    labels = tuple(int(place == answer) for place in range(4))
    return [Group(pool=pool, query="q", passages=("a", "b", "c", "d"), fused=FUSED, labels=labels)] * count


def test_a_model_that_is_right_everywhere_speaks_as_loud_as_it_helps() -> None:
    scale, gains = choose_scale([[-3.0, -3.0, -3.0, 3.0]] * 20, groups(3, "a", 10) + groups(3, "b", 10))

    assert gains[scale] == max(gains.values()) > 0


def test_a_model_that_harms_one_kind_is_held_to_where_it_does_not() -> None:
    """Right where the second should be first, wrong where the last is preferred to the first."""
    logits = [[-1.0, 1.0, -1.0, -1.0]] * 10 + [[-4.0, -4.0, -4.0, 4.0]] * 10
    asked = groups(1, "helped", 10) + groups(0, "harmed", 10)
    scale, _ = choose_scale(logits, asked)

    assert scale < max(SCALES)


def test_a_model_that_harms_at_any_strength_has_the_least() -> None:
    scale, _ = choose_scale([[-900.0, -900.0, 900.0, -900.0]] * 10, groups(0, "a", 5) + groups(1, "b", 5))

    assert scale == min(SCALES)

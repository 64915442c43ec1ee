import pytest

from agentrl.text.formatting import format_duration, one_line, pluralize, printable


def test_text_is_joined_to_one_line_and_counts_have_plurals() -> None:
    assert one_line("a\n b\tc") == "a b c"
    assert one_line("x" * 100_000, 10) == "x" * 10 + "..."
    assert len(one_line(" x\n" * 100_000, 10)) <= 13
    assert [pluralize(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31mred\x07\nb\u202e") == "a\\x1b[31mred\\x07\nb\\u202e"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00"), (185, "3:05"), (3725, "1:02:05")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text

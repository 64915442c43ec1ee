import time

import pytest

from agentrl.errors import ActionError
from agentrl.text import (
    action_tag_content,
    did_you_mean,
    format_duration,
    known_names,
    one_line,
    pluralize,
    printable,
    remember_serial,
    short_serial,
    with_short_serials,
)


@pytest.mark.parametrize(
    ("serial", "kind"),
    [
        ("192.168.1.7:5555", "net-"),
        ("phone.local:5555", "net-"),
        ("adb-R58M123-a1b2c3._adb-tls-connect._tcp", "net-"),
        ("R58M123ABC", "usb-"),
        ("0123456789", "usb-"),
    ],
)
def test_a_serial_is_shortened_to_its_kind_and_a_few_digits(serial: str, kind: str) -> None:
    short = short_serial(serial)
    assert short.startswith(kind)
    assert len(short) == 10
    assert short_serial(serial) == short
    assert not any(part in short for part in (serial, "192", "R58"))


def test_short_serials_are_distinct() -> None:
    assert len({short_serial(f"10.0.0.{n}:5555") for n in range(200)}) == 200


@pytest.mark.parametrize(
    "serial", ["emulator-5554", "127.0.0.1:43637", "localhost:5600", "[::1]:5600", "virtual:8"]
)
def test_virtual_phones_keep_their_names(serial: str) -> None:
    assert short_serial(serial) == serial


def test_known_serials_and_every_address_in_a_text_are_shortened() -> None:
    text = "R58M is gone; 10.0.0.7:5555 too, R58M2 and 127.0.0.1:5600 stay, version 1.2.3.4"
    assert with_short_serials(text, ["R58M"]) == (
        f"{short_serial('R58M')} is gone; {short_serial('10.0.0.7:5555')} too, R58M2 and "
        "127.0.0.1:5600 stay, version 1.2.3.4"
    )


def test_a_remembered_serial_is_shortened() -> None:
    assert with_short_serials("MET0000001 is lost") == "MET0000001 is lost"
    remember_serial("MET0000001")
    assert with_short_serials("MET0000001 is lost") == f"{short_serial('MET0000001')} is lost"


def test_close_names_are_suggested_or_some_of_the_known_ones_listed() -> None:
    games = [f"Game-v{k}" for k in range(4)] + ["ns/Snake-v0", *(f"other{k}" for k in range(20))]
    assert did_you_mean("snake", games) == " (did you mean 'ns/Snake-v0'?)"
    assert did_you_mean("game", games) == " (did you mean 'Game-v0', 'Game-v1' or 'Game-v2'?)"
    assert did_you_mean("Oth", games) == " (did you mean 'other0', 'other1' or 'other2'?)"
    assert did_you_mean("runs/other0", games) == ""
    assert did_you_mean("Ot", games) == did_you_mean("nope", games) == ""
    assert known_names("snake", games, command="agentrl x") == (
        " (did you mean 'ns/Snake-v0'?); agentrl x shows all"
    )
    assert known_names("snake", games[3:5]) == (
        " (did you mean 'ns/Snake-v0'?). Known: Game-v3, ns/Snake-v0"
    )
    assert known_names("nope", games[-20:]).endswith(" other18, other19")
    assert known_names("nope", games[-21:]).endswith(" other18 and 1 more")
    listed = known_names("nope", games, command="agentrl x", label="Games")
    assert listed.startswith(". Games: Game-v0, Game-v1")
    assert listed.endswith("other4 and 15 more (agentrl x)")
    assert known_names("nope", []) == ". Known: none"


def test_text_is_joined_to_one_line_and_counts_have_plurals() -> None:
    assert one_line("a\n b\tc") == "a b c"
    assert one_line("x" * 100_000, 10) == "x" * 10 + "..."
    assert len(one_line(" x\n" * 100_000, 10)) <= 13
    assert [pluralize(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


def test_the_only_action_is_found() -> None:
    assert action_tag_content("<think>so</think><action>tap(0.1, 0.2)</action>") == "tap(0.1, 0.2)"


@pytest.mark.parametrize(
    "reply",
    ["", "<action>", "</action>a<action>", "<action>a</action><action>b</action>", "<action>a"],
)
def test_anything_else_is_an_action_error(reply: str) -> None:
    with pytest.raises(ActionError, match="exactly one"):
        action_tag_content(reply)


def test_a_megabyte_of_tags_is_rejected_quickly() -> None:
    started = time.monotonic()
    with pytest.raises(ActionError):
        action_tag_content("<action>" * 125_000)
    assert time.monotonic() - started < 1


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31mred\x07\nb\u202e") == "a\\x1b[31mred\\x07\nb\\u202e"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1:00"), (185, "3:05"), (3725, "1:02:05")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text

import pytest

from agentrl.text.phone_names import remember_serial, short_serial, with_short_serials


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

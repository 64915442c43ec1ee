"""Touches and buttons that `sendevent` sends to the phone's input devices."""

import pytest

from tests.virtual_phone.shell_runner import Done, probe_phone, run
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ProbeApp.package
SLOT, X, Y, ID = 47, 53, 54, 57


@pytest.fixture
def phone() -> VirtualPhone:
    made = probe_phone()
    run(f"am start -n {PACKAGE}/.Main", made)
    return made


def send(phone: VirtualPhone, *events: tuple[int, int, int], device: int = 1) -> Done:
    """Send events; (0, 0, 0) is SYN_REPORT."""
    lines = [f"sendevent /dev/input/event{device} {a} {b} {c}" for a, b, c in events]
    return run("\n".join(lines), phone)


def inputs(phone: VirtualPhone) -> list[tuple[object, ...]]:
    return phone.tasks.apps[PACKAGE].inputs


def down(x: int, y: int, number: int = 7) -> list[tuple[int, int, int]]:
    return [(3, ID, number), (1, 330, 1), (3, X, x), (3, Y, y), (3, 58, 50), (0, 0, 0)]


UP = [(3, ID, 4294967295), (1, 330, 0), (0, 0, 0)]  # as scripts write -1
SYNC = (0, 0, 0)


def test_a_touch_is_the_tap_at_its_pixel(phone: VirtualPhone) -> None:
    other = probe_phone()
    run(f"am start -n {PACKAGE}/.Main; input tap 30 60", other)
    assert send(phone, *down(30, 60)).code == 0
    assert inputs(phone) == []
    send(phone, *UP)
    assert inputs(phone) == inputs(other) != []
    send(phone, *down(30, 60), *UP)
    assert inputs(phone) == inputs(other) * 2


def test_a_finger_that_moves_swipes(phone: VirtualPhone) -> None:
    other = probe_phone()
    run(f"am start -n {PACKAGE}/.Main; input swipe 30 60 30 100 0", other)
    send(phone, *down(30, 60), (3, Y, 80), SYNC, (3, Y, 100), SYNC, *UP)
    assert inputs(phone) == inputs(other) != []


# The point of the panel under a pixel of the turned image, by airtest's XYTransformer.ori_2_up.
PANEL = {
    0: lambda x, y: (x, y),
    1: lambda x, y: (71 - y, x),
    2: lambda x, y: (71 - x, 127 - y),
    3: lambda x, y: (y, 127 - x),
}


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_coordinates_are_those_of_the_panel_however_the_phone_is_held(
    phone: VirtualPhone, turns: int
) -> None:
    run(f"wm user-rotation lock {turns}", phone)
    send(phone, *down(*PANEL[turns](40, 50)), *UP)
    run("input tap 40 50", phone)
    first, second = inputs(phone)
    assert first == second


def test_an_overridden_size_is_scaled_to_the_panel(phone: VirtualPhone) -> None:
    run("wm size 144x256", phone)
    send(phone, *down(71, 127), *UP)
    run("input tap 142.5 254.5", phone)
    first, second = inputs(phone)
    assert first == second


def test_a_second_finger_does_not_disturb_the_first(phone: VirtualPhone) -> None:
    send(phone, *down(30, 60), (3, SLOT, 1), *down(10, 20, 8), (3, X, 50), SYNC, *UP)
    assert inputs(phone) == []
    send(phone, (3, SLOT, 0), *UP)
    assert [name for name, *_ in inputs(phone)] == ["touch"]


def test_a_new_tracking_id_is_a_new_touch(phone: VirtualPhone) -> None:
    send(phone, *down(30, 60), *down(40, 70, 8), *UP)
    assert [name for name, *_ in inputs(phone)] == ["touch", "touch"]


def test_buttons_act_with_their_report(phone: VirtualPhone) -> None:
    send(phone, (1, 116, 1), device=0)
    assert "=Awake" in run("dumpsys power", phone).out
    send(phone, SYNC, (1, 116, 0), SYNC, device=0)
    assert "=Awake" not in run("dumpsys power", phone).out
    send(phone, *down(30, 60), *UP)
    assert inputs(phone) == []


def test_a_fault_of_the_input_takes_touches_too(phone: VirtualPhone) -> None:
    phone.faults.set("input", "lost")
    send(phone, *down(30, 60), *UP)
    assert inputs(phone) == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("/dev/input/event9 0 0 0", "/dev/input/event9: No such file or directory"),
        ("/dev/null 0 0 0",
         "EVIOCGVERSION failed for /dev/null: Inappropriate ioctl for device"),
        ("/dev/input/event1 0 0", 'Need 4 arguments (see "sendevent --help")'),
        ("/dev/input/event1 0 0 0 0", 'Max 4 arguments (see "sendevent --help")'),
    ],
)  # fmt: skip
def test_a_wrong_call_is_rejected(phone: VirtualPhone, words: str, error: str) -> None:
    done = run(f"sendevent {words}", phone)
    assert (done.err, done.code) == (f"sendevent: {error}\n", 1)


def test_numbers_are_read_as_by_atoi(phone: VirtualPhone) -> None:
    assert run("sendevent /dev/input/event1 EV_ABS x 12y", phone).code == 0
    assert run("ls /dev/input; [ -c /dev/input/event1 ] && echo yes", phone).out == (
        "event0\nevent1\nyes\n"
    )

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from agentrl.devices import Action, AppGuard, Device, Key, Look, Tap, Wait, open_device
from agentrl.devices.adb import AdbServer
from agentrl.errors import AppLeft, CaptureError, NotInFront, ScreenTurned

pytestmark = pytest.mark.adb
PACKAGE, CHROME = "org.agentrl.probe", "com.android.chrome"
TOP = Tap(0.5, 0.25)
Say = Callable[..., None]
_FAULTS = ("dialog", "input", "focus", "front", "publish_late_s", "rotation", "capture")


class Interrupted:
    """A real phone to which something happens right before or right after an action."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.unsure: list[Callable[[], None]] = []
        """What happens when it is asked what is in front and does not know, one after the other."""
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        before, self.before = self.before, lambda: None
        before()
        first, last = self._device.send_action(action, package, only_in)
        self.after()
        self.after = lambda: None
        return first, last

    def focus(self) -> str | None:
        if not self.unsure:
            return self._device.focus()
        self.unsure.pop(0)()
        return None


@pytest.fixture(scope="module")
def opened(adb_server: AdbServer) -> Iterator[Device]:
    device = open_device(
        "virtual", apps=["agentrl.virtual_phone.apps.probe_app:ProbeApp"], effect_delay_ms=(0, 0)
    )
    device.deadlines = replace(device.deadlines, settle_s=1.0)
    yield device
    device.close()


@pytest.fixture
def say(opened: Device) -> Iterator[Say]:
    """Sets faults of the phone; takes them away in the end."""

    def set_faults(**faults: str) -> None:
        for name, value in faults.items():
            opened.shell("setprop", f"debug.agentrl.fault.{name}", value)

    yield set_faults
    set_faults(**dict.fromkeys(_FAULTS, ""))


@pytest.fixture
def phone(opened: Device, say: Say) -> Interrupted:
    opened.launch(PACKAGE, ".Main", {})
    return Interrupted(opened)


@pytest.fixture
def guard(phone: Interrupted) -> AppGuard:
    # A slow machine takes long to look, too.
    guard = AppGuard(cast(Device, phone), PACKAGE, soon_s=60)
    guard.perform(Wait(0.0), before=phone.screenshot())
    return guard


def halves(phone: Interrupted) -> list[int]:
    return list((cast(Device, phone).look(PACKAGE).state or {})["halves"])


def test_where_nothing_happens_there_is_no_event(guard: AppGuard, phone: Interrupted) -> None:
    guarded = guard.perform(TOP, before=phone.screenshot())
    assert (guarded.left, guarded.events, halves(phone)[0]) == (False, (), 1)
    assert guarded.settled is not None
    assert guarded.settled.handled


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        ({"dialog": "call"}, "call"),
        ({"dialog": "permission"}, "permission"),
        ({"front": CHROME}, "foreign_app"),
    ],
)
def test_what_came_before_the_action_is_sent_away_and_meets_no_touch(
    guard: AppGuard, phone: Interrupted, say: Say, faults: dict[str, str], kind: str
) -> None:
    before = phone.screenshot()
    say(**faults)
    guarded = guard.perform(TOP, before=before)
    (event,) = guarded.events
    assert (event.kind, event.by, guarded.left) == (kind, "world", False)
    assert halves(phone)[0] == 1
    assert guarded.settled is not None
    assert np.array_equal(guarded.settled.frame, phone.screenshot())


@pytest.mark.parametrize("dialog", ["anr", "crash"])
def test_on_a_dialog_about_the_app_nothing_is_pressed(
    guard: AppGuard, phone: Interrupted, say: Say, dialog: str
) -> None:
    before = phone.screenshot()
    say(dialog=dialog)
    with pytest.raises(AppLeft, match=f"^{dialog}: .*no key is pressed on it; by the world"):
        guard.perform(TOP, before=before)


def test_what_does_not_go_away_is_void(guard: AppGuard, phone: Interrupted, say: Say) -> None:
    say(focus="com.android.settings/.Settings")
    with pytest.raises(AppLeft, match=r"^foreign_app: .*com\.android\.settings is in front after"):
        guard.perform(TOP, before=phone.screenshot())


def test_nothing_in_front_is_void(guard: AppGuard, phone: Interrupted, say: Say) -> None:
    say(focus="null")
    with pytest.raises(AppLeft, match=r"^nothing_in_front: "):
        guard.perform(TOP, before=phone.screenshot())


def test_a_phone_that_does_not_know_what_is_in_front_is_waited_for_and_no_key_is_pressed(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    say(focus="com.android.chrome/.Main")  # as where a page in a browser has lost its connection
    phone.unsure = [lambda: None, lambda: None, lambda: say(focus="")]
    guarded = guard.perform(TOP, before=before)
    assert (guarded.events, halves(phone)[0]) == ((), 1)


def test_an_app_that_is_no_longer_as_it_was_is_void(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    phone.launch(PACKAGE, ".Main", {})
    say(dialog="call")
    with pytest.raises(AppLeft, match=f"the state of {PACKAGE} changed"):
        guard.perform(TOP, before=before)


@pytest.mark.parametrize("key", ["HOME", "BACK"])
def test_the_agents_own_key_is_its_leaving(guard: AppGuard, phone: Interrupted, key: str) -> None:
    guarded = guard.perform(Key(key), before=phone.screenshot())
    (event,) = guarded.events
    assert (guarded.left, guarded.settled, event.by) == (True, None, "agent")
    assert f"{key} is a system key" in event.evidence
    assert event.to_info()["no_frame"] == "org.agentrl.launcher is in front"


def test_a_touch_that_another_window_took_is_the_agents_leaving(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(input="NotificationShade")
    (event,) = guard.perform(TOP, before=phone.screenshot()).events
    assert (event.kind, event.by) == ("system_window", "agent")
    assert "did not count" in event.evidence


def test_a_menu_of_the_app_is_no_other_window(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(focus="PopupWindow:7f3")
    guarded = guard.perform(TOP, before=phone.screenshot())
    assert (guarded.left, guarded.events, halves(phone)[0]) == (False, (), 1)


def test_a_touch_that_the_app_counts_late_has_led_nowhere(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(publish_late_s="0.2")
    phone.after = lambda: say(front=CHROME)
    guarded = guard.perform(TOP, before=phone.screenshot())
    (event,) = guarded.events
    assert (event.kind, event.by, guarded.left) == ("foreign_app", "world", False)
    assert "had already counted the touch" in event.evidence
    assert halves(phone)[0] == 1


def test_a_call_that_came_with_the_touch_is_declined_and_play_goes_on(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    phone.before = lambda: say(dialog="call")
    guarded = guard.perform(TOP, before=before)
    (event,) = guarded.events
    assert (event.kind, event.by, guarded.left, halves(phone)[0]) == ("call", "world", False, 1)
    phone.after = lambda: say(dialog="call")
    guarded = guard.perform(TOP, before=before)
    assert ([e.by for e in guarded.events], halves(phone)[0]) == (["world"], 2)
    assert guarded.settled is not None
    assert guarded.settled.changed, "the touch of the app stands, beside the call"
    assert np.array_equal(guarded.settled.frame, phone.screenshot())


def test_a_call_hides_no_leaving(guard: AppGuard, phone: Interrupted, say: Say) -> None:
    phone.after = lambda: say(dialog="call")
    guarded = guard.perform(Key("HOME"), before=phone.screenshot())
    assert [(e.kind, e.by) for e in guarded.events] == [
        ("call", "world"), ("foreign_app", "agent"),
    ]  # fmt: skip
    assert guarded.left


@pytest.mark.parametrize(
    "faults", [{"dialog": "crash"}, {"dialog": "call"}, {"front": CHROME}], ids=str
)
def test_what_comes_after_a_touch_that_was_lost_is_void(
    guard: AppGuard, phone: Interrupted, say: Say, faults: dict[str, str]
) -> None:
    say(input="lost")
    phone.after = lambda: say(**faults, input="")
    with pytest.raises(AppLeft, match=f"{PACKAGE} never received the touch; by the world"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_crash_after_a_counted_touch_is_the_worlds(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    phone.launch(PACKAGE, ".Main", {})
    guard.begin()
    guard.perform(Wait(0.0), before=phone.screenshot())
    phone.after = lambda: say(dialog="crash")
    with pytest.raises(AppLeft, match=r"^crash: .*by the world: the app had already counted"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_hang_that_is_told_at_once_began_before_the_touch(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    phone.after = lambda: say(dialog="anr")
    say(input="lost")
    with pytest.raises(AppLeft, match=r"^anr: .*by the world: it came sooner than 5 s"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_touch_meets_no_window_that_comes_right_before_it(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    phone.before = lambda: say(front=CHROME)
    guarded = guard.perform(TOP, before=before)
    (event,) = guarded.events
    assert (event.by, event.evidence) == ("world", "it was in front before the action was sent")
    assert halves(phone)[0] == 1, "the touch came after the window had gone"
    phone.before = lambda: say(dialog="anr")
    with pytest.raises(AppLeft, match=r"^anr: .*by the world: it was in front before"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_touch_meets_no_window_that_comes_again_when_it_was_sent_away(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    def come_twice() -> None:
        say(front=CHROME)
        phone.before = lambda: say(front=CHROME)

    before, phone.before = phone.screenshot(), come_twice
    phone.shell("cmd", "agentrl", "seen")
    with pytest.raises(NotInFront):
        guard.perform(TOP, before=before)
    ran = json.loads(phone.shell("cmd", "agentrl", "seen"))
    assert ["input", "keyevent"] in [command[:2] for command in ran]
    assert ["input", "tap"] not in [command[:2] for command in ran]


def test_a_touch_on_a_screen_that_was_turned_meanwhile_is_void(
    phone: Interrupted, say: Say
) -> None:
    guard = AppGuard(cast(Device, phone), PACKAGE, turns=False)
    free = AppGuard(cast(Device, phone), PACKAGE)
    before = phone.screenshot()
    say(rotation="1")
    with pytest.raises(ScreenTurned, match=r"was 720x1280 when Tap.* and is 1280x720 after it"):
        guard.perform(TOP, before=before)
    settled = guard.perform(Wait(0.0), before=before).settled
    assert settled is not None
    assert settled.frame.shape == (720, 1280, 3)
    assert not guard.perform(TOP, before=settled.frame).left
    assert not free.perform(TOP, before=before).left


def test_a_capture_that_is_stale_since_a_call_came_is_known(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    settled = guard.perform(Wait(0.0), before=phone.screenshot()).settled
    assert settled is not None
    phone.after = lambda: say(dialog="call")
    say(capture="stale")
    with pytest.raises(CaptureError, match="stale"):
        guard.perform(TOP, before=settled.frame, state_shows=True)


def test_a_package_that_is_allowed_is_no_event(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(front=CHROME)
    allowing = AppGuard(cast(Device, phone), PACKAGE, [CHROME])
    guarded = allowing.perform(Wait(0.0), before=phone.screenshot())
    assert (guarded.events, guarded.settled and guarded.settled.front) == ((), CHROME)


def test_a_call_from_before_is_declined_at_the_beginning(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(dialog="call")
    assert phone.focus() == "com.android.dialer"
    guard.begin()
    assert phone.focus() == PACKAGE


def test_the_key_that_hangs_up_switches_the_screen_off_where_nobody_calls(
    phone: Interrupted,
) -> None:
    phone.key("ENDCALL")
    assert "Asleep" in phone.shell("dumpsys", "power")
    phone.key("WAKEUP")
    phone.key("MENU")
    assert phone.focus() == PACKAGE

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from agentrl.devices import Action, AppGuard, Device, Key, Look, Tap, Wait, open_device
from agentrl.devices.adb import AdbServer
from agentrl.errors import (
    AppLeft,
    AppNotInFront,
    CaptureError,
    ConfigError,
    DeviceError,
    DeviceOffline,
    DeviceTimeout,
    LeaseLost,
    ScreenRotated,
)
from agentrl.types import Image

pytestmark = pytest.mark.adb
PACKAGE, CHROME = "org.agentrl.probe", "com.android.chrome"
TOP = Tap(0.5, 0.25)
Say = Callable[..., None]
_FAULTS = ("dialog", "input", "focus", "front", "publish_late_s", "rotation", "capture")


class Restless:
    """A real phone whose screen does not rest before `rests` is set."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._captures = 0
        self.rests = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def _moved(self, picture: Image) -> Image:
        if self.rests:
            return picture
        picture = picture.copy()
        self._captures += 1
        picture[500:540] = self._captures * 85 % 256
        return picture

    def screenshot(self) -> Image:
        return self._moved(self._device.screenshot())

    def screenshot_and_front(self) -> tuple[Image, str | None]:
        picture, front = self._device.screenshot_and_front()
        return self._moved(picture), front

    def send_action(
        self, action: Action, package: str, only_in: Collection[str] | None = None
    ) -> tuple[Look, Look]:
        first, last = self._device.send_action(action, package, only_in)
        return first, replace(last, screen=None)


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
    device = open_device("virtual", apps=["virtual_phone.apps.probe_app:ProbeApp"], tempo="quick")
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


def test_an_app_that_never_rests_costs_the_deadline_once(phone: Interrupted) -> None:
    restless = cast(Device, Restless(cast(Device, phone)))
    guard, seconds = AppGuard(restless, PACKAGE), []
    for _ in range(3):
        settled = guard.perform(TOP, before=restless.screenshot()).settled
        assert settled is not None
        assert settled.moves
        seconds.append(settled.seconds)
    assert seconds[0] >= 1.0, "the deadline"
    assert max(seconds[1:]) < 0.9
    assert halves(phone)[0] == 3


def test_a_screen_that_has_come_to_rest_is_waited_for_again(phone: Interrupted) -> None:
    restless = Restless(cast(Device, phone))
    device = cast(Device, restless)
    guard, before, moves = AppGuard(device, PACKAGE), device.screenshot(), []
    for _ in range(3):
        settled = guard.perform(TOP, before=before).settled
        assert settled is not None
        assert settled.changed
        before, restless.rests = settled.frame, True
        moves.append(settled.moves)
    assert moves == [True, True, False]


def halves(phone: Interrupted) -> list[int]:
    return list((cast(Device, phone).look(PACKAGE).state or {})["halves"])


def test_without_interruption_there_is_no_event(guard: AppGuard, phone: Interrupted) -> None:
    guarded = guard.perform(TOP, before=phone.screenshot())
    assert (guarded.left, guarded.events, halves(phone)[0]) == (False, (), 1)
    assert guarded.settled is not None
    assert guarded.settled.handled


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        ({"dialog": "call"}, "call"),
        ({"dialog": "permission"}, "permission"),
        ({"dialog": "install"}, "install"),
        ({"dialog": "update"}, "update"),
        ({"front": CHROME}, "foreign_app"),
    ],
)
def test_a_window_from_before_the_action_is_dismissed_and_gets_no_touch(
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
def test_nothing_is_pressed_on_a_dialog_about_the_app(
    guard: AppGuard, phone: Interrupted, say: Say, dialog: str
) -> None:
    before = phone.screenshot()
    say(dialog=dialog)
    with pytest.raises(AppLeft, match=f"^{dialog}: .*are never dismissed; attributed to the world"):
        guard.perform(TOP, before=before)


def test_a_window_that_stays_discards_the_episode(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(focus="com.android.settings/.Settings")
    with pytest.raises(AppLeft, match=r"^foreign_app: .*com\.android\.settings is in front after"):
        guard.perform(TOP, before=phone.screenshot())


def test_nothing_in_front_discards_the_episode(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(focus="null")
    with pytest.raises(AppLeft, match=r"^nothing_in_front: "):
        guard.perform(TOP, before=phone.screenshot())


@pytest.mark.parametrize("second", [DeviceTimeout, DeviceOffline, LeaseLost, DeviceError])
def test_the_error_of_a_dead_phone_names_the_action_and_not_the_look_after_it(
    guard: AppGuard, phone: Interrupted, second: type[DeviceError]
) -> None:
    def fail(error: DeviceError) -> None:
        raise error

    before = phone.screenshot()
    phone.before = lambda: fail(DeviceTimeout("input tap: no answer"))
    phone.unsure = [lambda: fail(second("dumpsys window"))]
    with pytest.raises(second, match=r"^input tap: no answer") as raised:
        guard.perform(TOP, before=before)
    assert type(raised.value) is second
    assert ("dumpsys" in str(raised.value)) == (second is not DeviceTimeout)


def test_an_unanswered_action_is_named_if_nothing_is_in_front_after_it(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    def go_dark() -> None:
        say(focus="null")
        raise DeviceTimeout("input tap: no answer")

    before, phone.before = phone.screenshot(), go_dark
    with pytest.raises(AppLeft, match=r"^nothing_in_front: input tap: no answer\. .*no window"):
        guard.perform(TOP, before=before)


def test_an_unknown_foreground_is_waited_for_without_pressing_a_key(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    say(focus="com.android.chrome/.Main")  # as where a page in a browser has lost its connection
    phone.unsure = [lambda: None, lambda: None, lambda: say(focus="")]
    guarded = guard.perform(TOP, before=before)
    assert (guarded.events, halves(phone)[0]) == ((), 1)


def test_a_changed_app_state_discards_the_episode(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    phone.launch(PACKAGE, ".Main", {})
    say(dialog="call")
    with pytest.raises(AppLeft, match=f"the state of {PACKAGE} changed"):
        guard.perform(TOP, before=before)


@pytest.mark.parametrize("key", ["HOME", "BACK"])
def test_a_system_key_pressed_by_the_agent_counts_as_leaving(
    guard: AppGuard, phone: Interrupted, key: str
) -> None:
    guarded = guard.perform(Key(key), before=phone.screenshot())
    (event,) = guarded.events
    assert (guarded.left, guarded.settled, event.by) == (True, None, "agent")
    assert f"{key} is a system key" in event.evidence
    assert event.to_info()["no_frame"] == "org.agentrl.launcher is in front"


def test_a_touch_taken_by_another_window_counts_as_leaving(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(input="NotificationShade")
    (event,) = guard.perform(TOP, before=phone.screenshot()).events
    assert (event.kind, event.by) == ("system_window", "agent")
    assert "did not count" in event.evidence


def test_a_menu_of_the_app_is_not_another_window(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(focus="PopupWindow:7f3")
    guarded = guard.perform(TOP, before=phone.screenshot())
    assert (guarded.left, guarded.events, halves(phone)[0]) == (False, (), 1)


def test_a_touch_counted_late_is_not_the_cause(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(publish_late_s="0.2")
    phone.after = lambda: say(front=CHROME)
    guarded = guard.perform(TOP, before=phone.screenshot())
    (event,) = guarded.events
    assert (event.kind, event.by, guarded.left) == ("foreign_app", "world", False)
    assert "had already counted the touch" in event.evidence
    assert halves(phone)[0] == 1


def test_a_call_during_the_touch_is_declined_and_the_episode_goes_on(
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


def test_a_call_does_not_hide_that_the_agent_left(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    phone.after = lambda: say(dialog="call")
    guarded = guard.perform(Key("HOME"), before=phone.screenshot())
    assert [(e.kind, e.by) for e in guarded.events] == [
        ("call", "world"), ("foreign_app", "agent"),
    ]  # fmt: skip
    assert guarded.left


@pytest.mark.parametrize(
    "faults", [{"dialog": "crash"}, {"dialog": "call"}, {"front": CHROME}], ids=str
)
def test_a_window_after_a_lost_touch_discards_the_episode(
    guard: AppGuard, phone: Interrupted, say: Say, faults: dict[str, str]
) -> None:
    say(input="lost")
    phone.after = lambda: say(**faults, input="")
    with pytest.raises(
        AppLeft, match=f"{PACKAGE} never received the touch; attributed to the world"
    ):
        guard.perform(TOP, before=phone.screenshot())


def test_a_crash_after_a_counted_touch_comes_from_the_world(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    phone.launch(PACKAGE, ".Main", {})
    guard.begin()
    guard.perform(Wait(0.0), before=phone.screenshot())
    phone.after = lambda: say(dialog="crash")
    with pytest.raises(AppLeft, match=r"^crash: .*the world because the app had already counted"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_hang_reported_at_once_began_before_the_touch(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    phone.after = lambda: say(dialog="anr")
    say(input="lost")
    with pytest.raises(AppLeft, match=r"^anr: .*the world because it came less than 5 s"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_touch_never_reaches_a_window_that_came_right_before_it(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    before = phone.screenshot()
    phone.before = lambda: say(front=CHROME)
    guarded = guard.perform(TOP, before=before)
    (event,) = guarded.events
    assert (event.by, event.evidence) == ("world", "it was in front before the action was sent")
    assert halves(phone)[0] == 1, "the touch came after the window had gone"
    phone.before = lambda: say(dialog="anr")
    with pytest.raises(AppLeft, match=r"^anr: .*the world because it was in front before"):
        guard.perform(TOP, before=phone.screenshot())


def test_a_touch_never_reaches_a_dismissed_window_that_comes_back(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    def come_twice() -> None:
        say(front=CHROME)
        phone.before = lambda: say(front=CHROME)

    before, phone.before = phone.screenshot(), come_twice
    phone.shell("cmd", "agentrl", "seen")
    with pytest.raises(AppNotInFront):
        guard.perform(TOP, before=before)
    ran = json.loads(phone.shell("cmd", "agentrl", "seen"))
    assert ["input", "keyevent"] in [command[:2] for command in ran]
    assert ["input", "tap"] not in [command[:2] for command in ran]


def test_a_touch_on_a_rotated_screen_discards_the_episode(phone: Interrupted, say: Say) -> None:
    guard = AppGuard(cast(Device, phone), PACKAGE, may_rotate=False)
    free = AppGuard(cast(Device, phone), PACKAGE)
    before = phone.screenshot()
    say(rotation="1")
    with pytest.raises(ScreenRotated, match=r"was 720x1280 when Tap.* and is 1280x720 after it"):
        guard.perform(TOP, before=before)
    settled = guard.perform(Wait(0.0), before=before).settled
    assert settled is not None
    assert settled.frame.shape == (720, 1280, 3)
    assert not guard.perform(TOP, before=settled.frame).left
    assert not free.perform(TOP, before=before).left


def test_a_stale_capture_after_a_call_is_detected(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    settled = guard.perform(Wait(0.0), before=phone.screenshot()).settled
    assert settled is not None
    phone.after = lambda: say(dialog="call")
    say(capture="stale")
    with pytest.raises(CaptureError, match="stale"):
        guard.perform(TOP, before=settled.frame, state_shows=True)


def test_without_published_state_an_update_that_covers_the_app_discards_the_episode(
    phone: Interrupted, say: Say
) -> None:
    phone.shell("rm", "-f", f"/data/local/tmp/agentrl/{PACKAGE}.json")
    guard, before = AppGuard(cast(Device, phone), PACKAGE), phone.screenshot()
    say(dialog="update")
    with pytest.raises(AppLeft, match=r"^update: .*so it is not resumed; attributed to the world"):
        guard.perform(TOP, before=before)


def test_leaving_by_the_screen_going_dark_is_named(guard: AppGuard, phone: Interrupted) -> None:
    before = phone.screenshot()
    phone.perform(Key("SLEEP"))
    try:
        with pytest.raises(AppLeft, match=r"its screen is off; set devices\.wake=true to wake it"):
            guard.perform(TOP, before=before)
    finally:
        phone.perform(Key("WAKEUP"))
        phone.perform(Key("MENU"))


@pytest.fixture(scope="module")
def wechat(adb_server: AdbServer) -> Iterator[Device]:
    device = open_device(
        "virtual", apps=["agentrl.envs.wechat.tree_game.app:TreeGameApp"], tempo="quick"
    )
    yield device
    device.close()


MINI_GAME = "com.tencent.mm/.plugin.appbrand.ui.AppBrandUI"
TITLE, CIRCLE, ENTRY = Tap(0.3, 0.075), Tap(0.92, 0.075), Tap(0.5, 0.25)


def test_a_mini_game_is_told_from_the_chats_of_its_app(wechat: Device) -> None:
    wechat.launch("com.tencent.mm", ".plugin.appbrand.ui.AppBrandUI", {"seed": "1"})
    guard = AppGuard(wechat, MINI_GAME)
    guarded = guard.perform(TITLE, before=wechat.screenshot())
    assert (guarded.left, guarded.events) == (False, ())
    guarded = guard.perform(CIRCLE, before=wechat.screenshot())
    (event,) = guarded.events
    assert (event.package, event.by) == ("com.tencent.mm/com.tencent.mm.ui.LauncherUI", "agent")
    assert guarded.left
    before = wechat.app_state("com.tencent.mm")["touches"]
    with pytest.raises(AppLeft, match=r"com\.tencent\.mm"):
        AppGuard(wechat, MINI_GAME).perform(ENTRY, before=wechat.screenshot())
    after = wechat.app_state("com.tencent.mm")["touches"]
    assert after - before <= 1, "BACK alone: the touch would have opened the entry"


@pytest.mark.parametrize("entry", ["com.tencent.mm/a b", "com.tencent.mm/.ui;reboot", "/x", ""])
def test_an_invalid_entry_is_an_error_at_once(phone: Interrupted, entry: str) -> None:
    with pytest.raises(ConfigError, match="is not a package"):
        AppGuard(cast(Device, phone), PACKAGE, [entry])


def test_an_allowed_package_is_not_an_event(guard: AppGuard, phone: Interrupted, say: Say) -> None:
    say(front=CHROME)
    allowing = AppGuard(cast(Device, phone), PACKAGE, [CHROME])
    guarded = allowing.perform(Wait(0.0), before=phone.screenshot())
    assert (guarded.events, guarded.settled and guarded.settled.front) == ((), CHROME)


def test_a_call_from_before_the_launch_is_declined(
    guard: AppGuard, phone: Interrupted, say: Say
) -> None:
    say(dialog="call")
    assert phone.focus() == "com.android.dialer"
    guard.begin()
    assert phone.focus() == PACKAGE


def test_the_end_call_key_turns_the_screen_off_without_a_call(
    phone: Interrupted,
) -> None:
    phone.perform(Key("ENDCALL"))
    assert "Asleep" in phone.shell("dumpsys", "power")
    phone.perform(Key("WAKEUP"))
    phone.perform(Key("MENU"))
    assert phone.focus() == PACKAGE

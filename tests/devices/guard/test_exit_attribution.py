from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.devices import Action, Done, Drag, Key, LongPress, Swipe, Tap, Type, Wait
from agentrl.devices.device import Window, WindowKind
from agentrl.devices.guard.exit_attribution import ExitEvidence, attribute_exit
from agentrl.devices.guard.foreground import parse_front_package, parse_window

share = st.floats(0, 1)
touches: st.SearchStrategy[Any] = st.one_of(
    st.builds(Tap, share, share),
    st.builds(LongPress, share, share),
    st.builds(Swipe, share, share, share, share),
    st.builds(Drag, share, share, share, share),
    st.builds(Key, st.sampled_from(["HOME", "BACK", "MENU", "KEYCODE_ENTER"])),
    st.builds(Type, st.text(min_size=1)),
)
windows = st.builds(
    Window, kind=st.sampled_from(get_args(WindowKind)), package=st.just("com.other")
)
MIDDLE, APP = Tap(0.5, 0.5), Window(kind="foreign_app", package="com.other")


def by(window: Window, action: Action | None, handled: bool | None, seconds: float = 0.1) -> str:
    evidence = ExitEvidence(action=action, handled=handled, seconds=seconds)
    return attribute_exit(window, evidence, soon_s=2.0)[0]


@settings(deadline=None, max_examples=50)
@given(windows, st.sampled_from([None, Wait(3.0), Done(), Type("")]), st.floats(0, 100))
def test_an_action_that_touches_nothing_is_never_the_cause(
    window: Window, action: Action | None, seconds: float
) -> None:
    assert by(window, action, None, seconds) == "world"


@settings(deadline=None, max_examples=50)
@given(touches, st.sampled_from([True, False, None]), st.floats(0, 100))
def test_calls_and_permission_requests_come_from_the_world(
    action: Action, handled: bool | None, seconds: float
) -> None:
    for kind in ("call", "permission"):
        assert by(Window(kind=kind, package="x"), action, handled, seconds) == "world"  # type: ignore[arg-type]


@pytest.mark.parametrize("handled", [True, False, None])
@pytest.mark.parametrize(
    "action",
    [
        Key("HOME"), Key("back"), Key("KEYCODE_APP_SWITCH"), Tap(0.5, 0.01), Tap(0.5, 0.97),
        Swipe(0.5, 0.0, 0.5, 0.6), Swipe(0.01, 0.5, 0.6, 0.5), Drag(0.99, 0.5, 0.4, 0.5),
    ],
)  # fmt: skip
def test_system_exits_are_attributed_to_the_agent(action: Action, handled: bool | None) -> None:
    assert by(APP, action, handled, seconds=10) == "agent"


@pytest.mark.parametrize(
    ("handled", "seconds", "expected"),
    [(True, 0.1, "world"), (False, 9.0, "world"), (None, 0.1, "agent"), (None, 9.0, "world")],
)
@pytest.mark.parametrize("kind", ["foreign_app", "system_window", "crash"])
def test_an_uncounted_touch_is_the_cause_of_what_follows_soon(
    kind: WindowKind, handled: bool | None, seconds: float, expected: str
) -> None:
    assert by(Window(kind=kind, package="x"), MIDDLE, handled, seconds) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("foreign_app", "world"), ("crash", "world"), ("system_window", "agent")],
)
def test_a_touch_that_an_app_did_not_count_may_have_been_lost(
    kind: WindowKind, expected: str
) -> None:
    assert by(Window(kind=kind, package="x"), MIDDLE, handled=False) == expected


@pytest.mark.parametrize(
    ("handled", "seconds", "expected"),
    [(False, 0.5, "world"), (False, 6.0, "agent"), (True, 6.0, "world")],
)
def test_a_hang_is_reported_five_seconds_after_the_first_unanswered_touch(
    handled: bool, seconds: float, expected: str
) -> None:
    assert by(Window(kind="anr", package="org.game"), MIDDLE, handled, seconds) == expected


@pytest.mark.parametrize(
    ("focus", "kind", "package"),
    [
        ("null", "nothing_in_front", ""),
        ("Window{a1 u0 com.android.chrome/.Main}", "foreign_app", "com.android.chrome"),
        ("Window{a1 com.old/com.old.Main}", "foreign_app", "com.old"),
        ("Window{a1 u0 NotificationShade}", "system_window", "NotificationShade"),
        ("Window{a1 u0 PopupWindow:7f3}", "foreign_app", "org.game"),
        ("Window{a1 u0 Application Error: org.game}", "crash", "org.game"),
        ("Window{a1 u0 Application Not Responding: org.game}", "anr", "org.game"),
        (
            "Window{a1 u0 com.google.android.dialer/com.android.incallui.InCallActivity}",
            "call", "com.google.android.dialer",
        ),
        ("Window{a1 u0 com.google.android.dialer/.MainActivity}", "foreign_app",
         "com.google.android.dialer"),
        (
            "Window{a1 u0 com.miui.securitycenter/com.miui.permcenter.install.AdbInstallActivity}",
            "install", "com.miui.securitycenter",
        ),
        ("Window{a1 u0 com.miui.securitycenter/.Main}", "foreign_app", "com.miui.securitycenter"),
        (
            "Window{a1 u0 com.google.android.packageinstaller/com.android.packageinstaller"
            ".permission.ui.GrantPermissionsActivity}",
            "permission", "com.google.android.packageinstaller",
        ),
        (
            "Window{a1 u0 com.google.android.gms/com.google.android.gms.update"
            ".SystemUpdateActivity}",
            "update", "com.google.android.gms",
        ),
        ("Window{a1 u0 com.wssyncmldm/com.idm.fotaagent.Install}", "update", "com.wssyncmldm"),
        (
            "Window{a1 u0 com.google.android.permissioncontroller/com.android.permissioncontroller"
            ".permission.ui.GrantPermissionsActivity}",
            "permission", "com.google.android.permissioncontroller",
        ),
    ],
)  # fmt: skip
def test_the_kind_of_a_window_follows_from_its_title(focus: str, kind: str, package: str) -> None:
    output = f"  mCurrentFocus={focus}\n  mFocusedApp=ActivityRecord{{d4 u0 org.game/.Main t1}}\n"
    assert parse_window(output) == Window(kind=kind, package=package)  # type: ignore[arg-type]


def test_a_window_title_is_not_mistaken_for_the_foreground() -> None:
    output = (
        "  Window #0 Window{a1 u0 mCurrentFocus=Window{b2 u0 org.game/.Main}}:\n"
        "  mCurrentFocus=Window{a1 u0 org.other/.Main}\n"
    )
    assert parse_front_package(output) == "org.other"
    assert parse_window(output) == Window(kind="foreign_app", package="org.other")

"""Apps are opened, reopened and restarted as on Android."""

import json

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run
from virtual_phone.apps.app import state_path
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = "org.agentrl.probe"
START = f"am start -n {PACKAGE}/.Main"
TILE = "input tap 9 12"


@pytest.fixture
def phone() -> VirtualPhone:
    """Return a phone whose app has been touched once."""
    made = probe_phone()
    assert run(f"{START} --es level 3; input tap 36 40", made).err == ""
    return made


def published(phone: VirtualPhone) -> dict[str, object]:
    return json.loads(run(f"cat {state_path(PACKAGE)}", phone).out)


@pytest.mark.parametrize("key", ["HOME", "BACK"])
@pytest.mark.parametrize(
    "reopen",
    [
        START,
        f"am start -W -a android.intent.action.MAIN -p {PACKAGE}",
        f"monkey -p {PACKAGE} -c android.intent.category.LAUNCHER 1",
        TILE,
    ],
)
def test_reopened_app_is_as_it_was_left(phone: VirtualPhone, key: str, reopen: str) -> None:
    run(f"input keyevent {key}", phone)
    assert phone.shown.front is None
    left = published(phone)
    run(reopen, phone)
    assert phone.shown.front == PACKAGE
    assert published(phone) == left
    assert left["launches"] == 1


def test_am_says_that_it_started_no_activity(phone: VirtualPhone) -> None:
    assert "delivered to currently running top-most instance" in run(START, phone).err
    run("input keyevent HOME", phone)
    done = run(f"{START} -W", phone)
    assert "its current task has been brought to the front" in done.err
    assert "LaunchState: HOT" in done.out
    assert run("am start -f x", phone).err == 'Error: For input string: "x"\n'


@pytest.mark.parametrize(
    "restart",
    [
        f"{START} -S",
        f"am force-stop {PACKAGE}; {START}",
        f"{START} --activity-clear-task",
        f"{START} -f 0x10008000",
        f"pm clear {PACKAGE}; {TILE}",
    ],
)
def test_restarted_app_is_in_its_initial_state(phone: VirtualPhone, restart: str) -> None:
    run(restart, phone)
    new = probe_phone()
    run(START, new)
    assert published(phone) == published(new) | {"launches": 2, "touches": 1}


def test_restart_is_announced(phone: VirtualPhone) -> None:
    lines = run(f"{START} -S -W", phone).out.splitlines()
    assert lines[0] == f"Stopping: {PACKAGE}"
    assert lines[1].startswith("Starting: Intent {")
    assert "LaunchState: COLD" in lines


def test_pages_of_the_system_keep_what_they_show(phone: VirtualPhone) -> None:
    settings = "com.android.settings"
    run(f"am start -a android.settings.WIFI_SETTINGS; {START}", phone)
    for reopen in (f"am start -n {settings}/.Settings", f"monkey -p {settings} 1"):
        assert run(f"input keyevent HOME; {reopen}", phone).code == 0
        assert phone.shown.front == settings
        assert phone.tasks.pages[settings].extras["text"] == "android.settings.WIFI_SETTINGS"
    run(f"am force-stop {settings}; monkey -p {settings} 1", phone)
    assert phone.shown.front == settings
    assert not phone.tasks.pages[settings].extras["text"]


def test_monkey_starts_what_the_launcher_shows(phone: VirtualPhone) -> None:
    for package in ("com.android.chrome", "com.android.dialer"):
        assert "Events injected: 1" in run(f"monkey -p {package} 1", phone).out
        assert phone.shown.front == package
    assert "No activities found to run" in run("monkey -p com.android.systemui 1", phone).err
    run(f"pm disable {PACKAGE}", phone)
    assert run(f"monkey -p {PACKAGE} 1", phone).code == 252


def test_a_new_process_has_another_id(phone: VirtualPhone) -> None:
    started = run(f"pidof {PACKAGE}", phone).out
    assert run(f"input keyevent HOME; {START}; pidof {PACKAGE}", phone).out.endswith(started)
    restarted = run(f"{START} -S; pidof {PACKAGE}", phone).out.splitlines()[-1]
    assert restarted != started.strip()
    again = run(f"am force-stop {PACKAGE}; {START}; pidof {PACKAGE}", phone).out.splitlines()[-1]
    assert again not in (started.strip(), restarted)


@pytest.mark.parametrize("kill", [f"am kill {PACKAGE}", "am kill-all"])
def test_only_apps_in_the_background_are_killed(phone: VirtualPhone, kill: str) -> None:
    assert run(f"{kill}; pidof {PACKAGE}", phone).code == 0
    assert phone.shown.front == PACKAGE
    assert run(f"input keyevent HOME; {kill}; pidof {PACKAGE}", phone).code == 1


@pytest.mark.parametrize("action", ["DIAL", "CALL"])
def test_calls_are_made_by_the_dialer(phone: VirtualPhone, action: str) -> None:
    assert run(f"am start -a android.intent.action.{action} -d tel:5", phone).code == 0
    assert phone.shown.front == "com.android.dialer"

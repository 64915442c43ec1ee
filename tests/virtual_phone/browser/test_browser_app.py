"""Chrome on the virtual phone: real pages in a real Chromium, through the real adb."""

import base64
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
from websockets.sync.client import connect

from tests.virtual_phone.adb_station import Station, programs, stations
from tests.virtual_phone.browser.pages import PageServer, serving_pages
from virtual_phone import VirtualPhones, spawn
from virtual_phone.errors import SettingError

APP = "virtual_phone.browser.browser_app:BrowserApp"
PACKAGE = "com.android.chrome"
STATE = f"/data/local/tmp/agentrl/{PACKAGE}.json"
PATIENCE_S = 40

pytestmark = [pytest.mark.adb, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serving_pages() as running:
        yield running


@pytest.fixture(scope="module")
def phones() -> Iterator[VirtualPhones]:
    settings = {"deadline_s": 3.0, "hosts": ["127.0.0.2", "127.0.0.3*"]}
    with spawn(2, [(APP, settings)], tempo="quick") as running:
        yield running


@pytest.fixture(scope="module")
def both(phones: VirtualPhones, server: PageServer) -> Iterator[Sequence[Station]]:
    with stations(programs()[0], phones) as found:
        for one in found:
            one.adb("reverse", "tcp:8000", f"tcp:{server.server_port}")
        yield found


@pytest.fixture
def phone(both: Sequence[Station]) -> Iterator[Station]:
    yield both[0]
    both[0].adb("shell", "am", "force-stop", PACKAGE)


def open_page(phone: Station, path: str, title: str = "") -> None:
    """Open a page in a new process, and wait until it has a title."""
    url = f"http://localhost:8000{path}"
    phone.adb("shell", "am", "start", "-a", "android.intent.action.VIEW", "-d", url)
    phone.wait_for(f"cat {STATE}", f'"title": "{title}')


def picture(phone: Station) -> np.ndarray:
    """Capture the screen, uint8[height, width, 3], BGR."""
    png = phone.run("exec-out", "screencap", "-p").stdout
    return np.asarray(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR))


def wait_until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def focus(phone: Station) -> str:
    return phone.shell("dumpsys window | grep mCurrentFocus")


def devtools(phone: Station) -> str:
    """Forward the phone's DevTools protocol; return its address."""
    return (
        f"127.0.0.1:{phone.adb('forward', 'tcp:0', 'localabstract:chrome_devtools_remote').strip()}"
    )


def test_touches_text_keys_and_rotation_reach_the_page(phone: Station) -> None:
    open_page(phone, "/", "Front")
    phone.shell("input tap 200 270")
    phone.wait_for(f"cat {STATE}", '"touches": 1')
    # A touch counts when its effect can be seen.
    assert (picture(phone)[-10, -10] == (0, 0, 255)).all()
    phone.shell("input tap 100 470; input text hello; input keyevent DEL")
    phone.wait_for(f"cat {STATE}", '"title": "typed hell with helloBackspace"')
    phone.shell("input tap 40 665")
    phone.wait_for(f"cat {STATE}", '"title": "Second')
    phone.shell("input keyevent BACK")
    phone.wait_for(f"cat {STATE}", 'localhost:8000/"')
    phone.wait_for("uiautomator dump /dev/tty", "another tab")
    phone.shell("input tap 40 765")  # its link opens another tab
    phone.wait_for(f"cat {STATE}", '"title": "Second')
    phone.shell("settings put system accelerometer_rotation 0; settings put system user_rotation 1")
    wait_until(lambda: picture(phone).shape == (720, 1280, 3), "the screen has not turned")
    phone.shell("settings put system user_rotation 0; input keyevent BACK; input keyevent BACK")
    wait_until(lambda: "launcher" in focus(phone), "BACK has not left the browser")


def test_touches_and_views_of_a_page_that_is_wider_than_the_screen(phone: Station) -> None:
    open_page(phone, "/wide", "wide")
    phone.wait_for("uiautomator dump /dev/tty", "far")
    zoom = 720 / 980
    x, y = 730 * zoom, 48 + (1130 - 400) * zoom
    dumped = phone.shell("uiautomator dump /dev/tty")
    found = re.search(r'text="far"[^>]* bounds="\[(\d+),(\d+)\]\[(\d+),(\d+)\]"', dumped)
    assert found is not None
    left, top, right, bottom = map(int, found.groups())
    assert abs((left + right) / 2 - x) < 2
    assert abs((top + bottom) / 2 - y) < 2
    phone.shell(f"input tap {x:.0f} {y:.0f}")
    phone.wait_for(f"cat {STATE}", '"title": "wide touched"')


def test_the_screen_shows_the_pixels_that_chromium_renders(phone: Station) -> None:
    open_page(phone, "/", "Front")
    address = devtools(phone)
    (page,) = json.loads(subprocess.run(
        ["curl", "-sf", f"http://{address}/json"], capture_output=True, check=True, timeout=30
    ).stdout)  # fmt: skip
    with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:

        def ask(method: str, **parameters: object) -> dict[str, object]:
            socket.send(json.dumps({"id": 1, "method": method, "params": parameters}))
            while (answer := json.loads(socket.recv(30))).get("id") != 1:
                pass
            result: dict[str, object] = answer["result"]
            return result

        value = ask("Runtime.evaluate", expression="[devicePixelRatio, innerWidth, innerHeight]",
                    returnByValue=True)["result"]  # fmt: skip
        assert value["value"] == [2, 360, 616]  # type: ignore[index]
        taken = ask("Page.captureScreenshot", format="png")
        png = np.frombuffer(base64.b64decode(str(taken["data"])), np.uint8)
    shown = picture(phone)
    rendered = np.asarray(cv2.imdecode(png, cv2.IMREAD_COLOR))
    # Half of the last CSS pixel is below the screen.
    assert (shown.shape, rendered.shape) == ((1280, 720, 3), (1232, 720, 3))
    np.testing.assert_array_equal(shown[-1231:], rendered[:1231])


def test_the_view_hierarchy_names_what_can_be_touched(phone: Station) -> None:
    open_page(phone, "/", "Front")
    tree = ElementTree.fromstring(
        phone.run("exec-out", "uiautomator", "dump", "/dev/tty").stdout.partition(b"UI hier")[0]
    )
    views = {node.get("text"): node for node in tree.iter("node")}
    kinds = {name: views[name].get("class") for name in ("go", "name", "agree", "second")}
    assert kinds == {
        "go": "android.widget.Button",
        "name": "android.widget.EditText",
        "agree": "android.widget.CheckBox",
        "second": "android.view.View",
    }
    assert views["go"].get("bounds") == "[100,209][340,329]"
    assert views["agree"].get("checked") == "false"
    left, top, right, bottom = map(int, re.findall(r"\d+", views["second"].get("bounds", "")))
    phone.shell(f"input tap {(left + right) // 2} {(top + bottom) // 2}")
    phone.wait_for(f"cat {STATE}", '"title": "Second')


def test_every_phone_has_a_profile_and_a_page_of_its_own(both: Sequence[Station]) -> None:
    for phone in both:
        open_page(phone, "/second", "Second")
    pages = []
    for phone in both:
        # A cookie of one phone would be in the other's title.
        assert '"title": "Second []"' in phone.shell(f"cat {STATE}")
        listed = subprocess.run(
            ["curl", "-sf", f"http://{devtools(phone)}/json"], capture_output=True, check=True,
            timeout=30,
        )  # fmt: skip
        pages += json.loads(listed.stdout)
    assert len({page["id"] for page in pages}) == len(pages) == 2
    # The page of the other phone is not there, nor is the browser that both share.
    for path in (f"/devtools/page/{pages[1]['id']}", "/devtools/browser", "/json/new?about:blank"):
        answer = subprocess.run(
            ["curl", "-s", f"http://{devtools(both[0])}{path}"], capture_output=True, check=False,
            timeout=30,
        )  # fmt: skip
        assert answer.stdout == b""
    for phone in both:
        phone.shell(f"am force-stop {PACKAGE}")


def test_a_page_reaches_the_phones_ports_and_allowed_hosts_only(
    phone: Station, server: PageServer
) -> None:
    server.asked.clear()
    open_page(phone, "/reach", "yes")
    assert '"title": "yes no no no no no yes no"' in phone.shell(f"cat {STATE}")
    hosts = {asked.partition("/")[0] for asked in server.asked}
    assert hosts == {"localhost:8000", f"127.0.0.2:{server.server_port}"}


@pytest.mark.parametrize(
    ("path", "title"),
    [("/asks", "denied"), ("/worker", "refused")],
)
def test_what_a_page_asks_for_is_refused(phone: Station, path: str, title: str) -> None:
    open_page(phone, path, title)


@pytest.mark.parametrize("path", ["/leave", "/redirect"])
def test_a_page_that_leads_to_another_host_ends_there(phone: Station, path: str) -> None:
    url = f"http://localhost:8000{path}"
    phone.adb("shell", "am", "start", "-a", "android.intent.action.VIEW", "-d", url)
    phone.wait_for(f"cat {STATE}", "chrome-error")
    assert "chrome" in focus(phone)
    open_page(phone, "/", "Front")


def test_an_odd_title_is_published_and_home_counts_as_a_touch(phone: Station) -> None:
    open_page(phone, "/halves", "half ? of a character")
    touches = json.loads(phone.shell(f"cat {STATE}"))["touches"]
    phone.shell("input keyevent HOME")
    phone.wait_for(f"cat {STATE}", f'"touches": {touches + 1}')


def test_a_page_that_wants_to_stay_can_be_left(phone: Station) -> None:
    open_page(phone, "/stay", "stay")
    phone.shell("input tap 300 900; input tap 40 665")
    phone.wait_for(f"cat {STATE}", '"title": "Second')


def test_a_download_and_windows_without_a_touch_change_nothing(phone: Station) -> None:
    open_page(phone, "/download", "page")
    phone.shell("input tap 300 600")
    open_page(phone, "/windows", "windows....")
    assert "chrome" in focus(phone)


@pytest.mark.parametrize("path", ["/alerts", "/loop"])
def test_a_page_that_hangs_is_an_app_that_does_not_respond(phone: Station, path: str) -> None:
    url = f"http://localhost:8000{path}"
    phone.adb("shell", "am", "start", "-a", "android.intent.action.VIEW", "-d", url)
    if path == "/loop":
        phone.wait_for(f"cat {STATE}", path)
    phone.shell("sleep 1; input tap 300 600; input tap 300 600")
    wait_until(lambda: "Not Responding" in focus(phone), "no dialog")
    phone.shell("input tap 216 710")  # close the app
    wait_until(lambda: "launcher" in focus(phone), "the app was not closed")
    open_page(phone, "/", "Front")


@pytest.mark.slow
def test_a_page_that_takes_all_memory_is_an_app_that_crashes(
    both: Sequence[Station], phone: Station
) -> None:
    open_page(both[1], "/second", "Second")
    url = "http://localhost:8000/memory"
    phone.adb("shell", "am", "start", "-a", "android.intent.action.VIEW", "-d", url)
    phone.wait_for(f"cat {STATE}", "/memory")
    phone.shell("input tap 300 600")
    wait_until(lambda: "Application Error" in focus(phone), "no dialog")
    # The other phone's page is still there.
    both[1].shell("input keyevent HOME")
    open_page(both[1], "/", "Front")
    both[1].shell(f"am force-stop {PACKAGE}")


def test_a_phone_whose_browser_runs_cannot_be_saved(phone: Station) -> None:
    open_page(phone, "/", "Front")
    done = phone.run("shell", "cmd", "agentrl", "dump")
    assert done.returncode != 0
    assert b"com.android.chrome is running" in done.stderr
    phone.shell(f"am force-stop {PACKAGE}")
    saved = phone.adb("shell", "cmd", "agentrl", "dump")
    assert json.loads(saved)["running"] == []
    phone.adb("shell", "cmd", "agentrl", "load", input=saved.encode())
    open_page(phone, "/", "Front")


@pytest.mark.slow
def test_chromium_ends_with_the_phones_even_if_they_are_killed(server: PageServer) -> None:
    with spawn(1, [APP], tempo="quick") as running, stations(programs()[0], running) as (phone,):
        phone.adb("reverse", "tcp:8000", f"tcp:{server.server_port}")
        open_page(phone, "/", "Front")
        for pid, name in _descendants(running.pid).items():
            if name == "node":  # which drives Chromium
                os.kill(pid, signal.SIGKILL)
        open_page(phone, "/second", "Second")
        started = _descendants(running.pid)
        assert any("chrom" in name for name in started.values())
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: not _alive(started), f"still running: {_alive(started)}")


def _descendants(pid: int) -> dict[int, str]:
    rows = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, check=True, text=True
    ).stdout
    table = [row.split(None, 2) for row in rows.splitlines()]
    found, waiting = dict[int, str](), [pid]
    while waiting:
        parent = waiting.pop()
        for child, its_parent, name in table:
            if int(its_parent) == parent:
                found[int(child)] = name
                waiting.append(int(child))
    return found


def _alive(processes: dict[int, str]) -> dict[int, str]:
    def runs(pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return {pid: name for pid, name in processes.items() if runs(pid)}


def test_a_program_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRL_CHROMIUM", "/no/such/chromium")
    with pytest.raises(SettingError, match="AGENTRL_CHROMIUM=/no/such/chromium: this program does"):
        spawn(1, [APP])

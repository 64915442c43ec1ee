"""Queries about a phone's services, as client programs send them."""

import re

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = "org.agentrl.probe"


@pytest.fixture(scope="module")
def phone() -> VirtualPhone:
    made = probe_phone()
    run(f"am start -n {PACKAGE}/.Main", made)
    return made


@pytest.mark.parametrize(
    ("script", "pattern"),
    [
        ("service list", r"Found \d+ services:\n0\t\w+: \[[\w.]*\]\n"),
        ("service check window", r"Service window: found\n"),
        ("service check nothing", r"Service nothing: not found\n"),
        ("service call SurfaceFlinger 1013", r"Result: Parcel\("),
        ("getenforce", r"Enforcing\n"),
        ("uptime", r" \d\d:\d\d:\d\d up .+,  0 users,  load average: "),
        ("cmd wifi status", r"Wifi is enabled\n"),
        ("cmd wifi set-wifi-enabled disabled; cmd wifi status", r"Wifi is disabled\n"),
        ("svc wifi enable; dumpsys wifi", r"Wi-Fi is enabled\n"),
        ("dumpsys notification --noredact", r"Current Notification Manager state:\n"),
        ("dumpsys audio", r"- STREAM_MUSIC:\n   Muted: false\n"),
        ("dumpsys connectivity", r"Active default network: none\n"),
        ("dumpsys alarm", r"Current Alarm Manager state:\n"),
        (f"dumpsys gfxinfo {PACKAGE}", r"Total frames rendered: \d+\nJanky frames: 0 \(0.00%\)\n"),
        ("dumpsys gfxinfo com.nowhere", r"No process found for: com.nowhere\n"),
        ("dumpsys window windows", rf"imeLayeringTarget in display# 0 .* {PACKAGE}/.*Main}}\n"),
        ("dumpsys window windows", rf"mActivityRecord=ActivityRecord{{.* {PACKAGE}/.*Main t1}}\n"),
        ("dumpsys media_session", r"Sessions Stack - have 0 sessions:\n"),
        ("dumpsys telephony.registry", r"mDataConnectionState=0\n"),
        ("dumpsys deviceidle force-idle", r"Now forced in to deep idle mode\n"),
        ("dumpsys power", r"^Wake Locks: size=0\n"),
        ("cmd connectivity airplane-mode enable; cmd connectivity airplane-mode", r"enabled\n"),
        ("cmd phone data disable; settings get global mobile_data", r"0\n"),
        ("cmd bluetooth_manager enable; settings get global bluetooth_on", r"1\n"),
        (f"am get-standby-bucket {PACKAGE}", r"10\n"),
        (f"am set-debug-app {PACKAGE}; echo $?", r"0\n"),
        ("ip route", r"^127\.0\.0\.0/8 dev wlan0 .* src 127\.0\.0\.1\n"),
        ("ip addr show wlan0", r"link/ether 02:00:00:00:00:00 "),
        ("ip -f inet route show", r"^127\.0\.0\.0/8 dev wlan0 "),
        ("ip addr show eth0 2>&1", r'^Device "eth0" does not exist\.\n'),
        ("getprop ro.product.vendor.device", r"virtual\n"),
        ("getprop ro.build.version.security_patch", r"\d{4}-\d\d-\d\d\n"),
        (f"pm list package {PACKAGE}", rf"package:{PACKAGE}\n"),
        (
            f"pm list packages --show-versioncode -U {PACKAGE}",
            rf"package:{PACKAGE} versionCode:1 uid:10100\n",
        ),
        ("ps --help", r"usage: ps [\s\S]*^-A\tAll\n"),
        ("echo $SECONDS $((SECONDS + 5))", r"0 5\n"),
        ("screencap -h 2>&1", r"usage: screencap"),
    ],
)
def test_services_answer_as_on_a_real_phone(phone: VirtualPhone, script: str, pattern: str) -> None:
    assert re.search(pattern, run(script, phone).out, re.MULTILINE)


def test_random_numbers_differ(phone: VirtualPhone) -> None:
    numbers = run("for i in 1 2 3 4 5; do echo $RANDOM $((RANDOM)); done", phone).out.split()
    assert len({*numbers}) > 5
    assert all(0 <= int(number) < 32768 for number in numbers)


@pytest.mark.parametrize(
    "words",
    ["tap", "tap 1", "tap a b", "tap 1 2 3", "swipe 1 2 3", "keycombination -t",
     "keycombination -t x 4 24", "motionevent UP x y", "scroll x y", "swipe 1 2 3 4 x"],
)  # fmt: skip
def test_invalid_input_is_reported_as_by_android(phone: VirtualPhone, words: str) -> None:
    done = run(f"input {words}", phone)
    assert done.code == 255
    assert re.fullmatch(
        r'Error: Invalid arguments for command: \w+: (For input string: ".+"|'
        r'expected \d numbers, got \d|Argument expected after "keyevent")\n',
        done.err,
    )


def test_a_wheel_scrolls(phone: VirtualPhone) -> None:
    run("input scroll 36 60 --axis VSCROLL,-2", phone)
    name, x1, y1, x2, y2, _ = phone.tasks.apps[PACKAGE].inputs[-1]
    assert (name, x1) == ("swipe", x2)
    assert y2 < y1


def test_activities_are_listed_before_they_are_visible() -> None:
    phone = VirtualPhone([ProbeApp()], size=(72, 128), effect_delay_ms=(5000, 5000))
    out = run(f"am start -n {PACKAGE}/.Main; dumpsys activity activities", phone).out
    assert phone.shown.front is None
    history = re.findall(
        r"^    \* Hist  #0: ActivityRecord\{\w+ u0 (\S+) t\d+\}$", out, re.MULTILINE
    )
    assert history == [
        f"{PACKAGE}/{PACKAGE}.Main",
        "org.agentrl.launcher/org.agentrl.launcher.Home",
    ]
    assert re.search(rf"topResumedActivity=ActivityRecord\{{\w+ u0 {PACKAGE}/", out)


class Browser(ProbeApp):
    """An installed app that opens addresses."""

    package = "com.example.browser"
    schemes = ("http", "https", "game")


@pytest.mark.parametrize("options", ["", "-p com.example.browser", "-n com.example.browser/.Main"])
def test_addresses_reach_an_installed_app_that_opens_them(options: str) -> None:
    phone = VirtualPhone([Browser()], size=(72, 128), tempo="quick")
    view = f"am start -a android.intent.action.VIEW {options} -d"
    for address in ("http://127.0.0.1:1/x", "game://level/2"):
        assert run(f"{view} {address}", phone).code == 0
        assert phone.shown.front == Browser.package
        assert phone.tasks.apps[Browser.package].extras["data"] == address
    chrome = "com.android.chrome"
    assert (
        run(f"am start -a android.intent.action.VIEW -p {chrome} -d http://a.b/", phone).code == 0
    )
    assert phone.tasks.pages[chrome].extras["text"].startswith("http://a.b/")


def test_an_unknown_display_is_not_captured(phone: VirtualPhone) -> None:
    for display in ("99", "abc"):
        done = run(f"screencap -p -d {display} /sdcard/no.png", phone)
        assert (done.code, done.err) == (
            1,
            "Failed to take screenshot. Status: -2\nCapturing failed.\n",
        )
    assert run("ls /sdcard/no.png", phone).code == 1
    id_ = "dumpsys SurfaceFlinger --display-id | sed -E 's/^Display ([0-9]+).*/\\1/'"
    assert run(f"screencap -p -d $({id_}) /sdcard/yes.png", phone).code == 0


def test_disabled_packages_are_listed_and_do_not_start() -> None:
    phone = probe_phone()
    chrome = "com.android.chrome"
    run(f"pm disable-user --user 0 {chrome}; pm disable {PACKAGE}", phone)
    disabled = [f"package:{chrome}", f"package:{PACKAGE}"]
    assert run("pm list packages -d", phone).out.splitlines() == disabled
    assert not {*disabled} & {*run("pm list packages -e", phone).out.splitlines()}
    assert run(f"monkey -p {chrome} 1", phone).code == 252
    assert run("am start -a android.intent.action.VIEW -d http://127.0.0.1:1/", phone).code == 1
    run(f"pm enable {chrome}; pm enable {PACKAGE}", phone)
    assert run("pm list packages -d", phone).out == ""

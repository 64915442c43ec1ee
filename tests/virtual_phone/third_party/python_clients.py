"""Run one third-party Python client against a phone, and print a line per call.

    python python_clients.py CLIENT SERIAL ADB ADB_SERVER_PORT

A call fails if it raises, or if its result is not what a real phone would return.
"""

import asyncio
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGE, ACTIVITY = "org.agentrl.probe", "org.agentrl.probe.Main"
CAT_STATE = f"cat /data/local/tmp/agentrl/{PACKAGE}.json"
SIZE = (720, 1280)
Call = tuple[str, Callable[[], Any], Any]
"""Name, action, and the expected answer: a value, or a function that accepts it."""


class Phone:
    """How clients connect to the phone, and a folder on this computer."""

    def __init__(self, serial: str, adb: str, port: str) -> None:
        self.serial = serial
        self.adb = adb
        self.port = int(port)
        self.folder = Path(tempfile.mkdtemp())
        self.sent = os.urandom(100_000)
        self.file = self.folder / "sent.bin"
        self.file.write_bytes(self.sent)

    def back(self) -> bytes:
        """Return the content of the pulled file."""
        return (self.folder / "back").read_bytes()


def touches(shell: Callable[[str], str], act: Callable[[], object]) -> int:
    """Return the number of touches that the app in front receives during an action."""
    before = json.loads(shell(CAT_STATE))["touches"]
    act()
    return int(json.loads(shell(CAT_STATE))["touches"]) - int(before)


def after(shell: Callable[[str], str], act: Callable[[], object], key: str) -> Any:
    """Return a value of the published state of the app in front after an action."""
    act()
    return json.loads(shell(CAT_STATE))[key]


def is_screen(image: Any) -> bool:
    """Return whether this is an image of the screen's size that is not black."""
    import numpy as np

    pixels = np.asarray(image)
    return pixels.shape[:2] == SIZE[::-1] and bool(pixels.any())


def has(*texts: str) -> Callable[[Any], bool]:
    """Return whether the answer contains all of these strings."""
    return lambda answer: all(text in str(answer) for text in texts)


def adb_shell(phone: Phone) -> Iterator[Call]:
    """adb_shell connects directly to the phone without an adb server, using ADB's first version."""
    from adb_shell.adb_device import AdbDeviceTcp

    host, _, port = phone.serial.partition(":")
    device = AdbDeviceTcp(host, int(port), default_transport_timeout_s=9)
    back = str(phone.folder / "back")
    yield "connect", device.connect, True
    yield "shell", lambda: device.shell("echo hello; exit 3"), "hello\n"
    yield "shell of 1 MB", lambda: len(device.shell("head -c 1000000 /dev/zero")), 1_000_000
    yield "exec_out", lambda: device.exec_out("getprop ro.product.model"), "Virtual Phone\n"
    yield "streaming_shell", lambda: "".join(device.streaming_shell("echo a; echo b")), "a\nb\n"
    yield "push", lambda: device.push(str(phone.file), "/sdcard/sent.bin"), None
    yield "stat", lambda: device.stat("/sdcard/sent.bin")[1], len(phone.sent)
    yield "list", lambda: [one.filename for one in device.list("/sdcard")], has("sent")
    yield "pull", lambda: (device.pull("/sdcard/sent.bin", back), phone.back())[1], phone.sent
    yield "root", device.root, None
    yield "close", device.close, None


def uiautomator2(phone: Phone) -> Iterator[Call]:
    """Only uiautomator2's calls over ADB; all others need its own program on the phone."""
    import uiautomator2

    class WithoutJar(uiautomator2.Device):
        def start_uiautomator(self) -> None:
            pass

        def stop_uiautomator(self, wait: bool = True) -> None:
            pass

    device = WithoutJar(phone.serial)
    back = str(phone.folder / "back")

    def shell(script: str) -> str:
        return str(device.shell(script).output)

    yield "device_info", lambda: device.device_info["model"], "Virtual Phone"
    yield "shell", lambda: device.shell("echo out; false").exit_code, 1
    yield "push", lambda: device.push(str(phone.file), "/sdcard/sent.bin"), has("")
    yield "pull", lambda: (device.pull("/sdcard/sent.bin", back), phone.back())[1], phone.sent
    yield "window_size", device.window_size, SIZE
    yield "screenshot", lambda: device.screenshot(display_id=0), is_screen
    yield "app_start", lambda: device.app_start(PACKAGE, ACTIVITY, stop=True), None
    yield "app_start by monkey", lambda: device.app_start(PACKAGE, use_monkey=True), None
    yield "app_start, resolved", lambda: device.app_start(PACKAGE), None
    yield "app_wait", lambda: device.app_wait(PACKAGE, front=True, timeout=5) > 0, True
    yield "app_current", device.app_current, has(PACKAGE, ACTIVITY)
    yield "wait_activity", lambda: device.wait_activity(ACTIVITY, timeout=5), True
    yield "app_list", device.app_list, has(PACKAGE)
    yield "app_list_running", device.app_list_running, has(PACKAGE)
    yield "app_info", lambda: device.app_info(PACKAGE), has("versionName")
    yield "wlan_ip", lambda: device.wlan_ip, "127.0.0.1"
    enter = lambda: device.keyevent("66")  # noqa: E731
    yield "keyevent", lambda: after(shell, enter, "keys"), ["KEYCODE_ENTER"]
    yield "app_auto_grant_permissions", lambda: device.app_auto_grant_permissions(PACKAGE), None
    yield "app_clear", lambda: device.app_clear(PACKAGE), None
    yield "app_stop", lambda: device.app_stop(PACKAGE), None
    yield "app_stop_all", device.app_stop_all, has("")
    yield "open_url", lambda: device.open_url("http://127.0.0.1:1/"), None


def airtest(phone: Phone) -> Iterator[Call]:
    """airtest's class ADB, except for calls that need its APKs."""
    from airtest.core.android.adb import ADB

    device = ADB(phone.serial, phone.adb, server_addr=("127.0.0.1", phone.port))
    back = str(phone.folder / "back")

    def png() -> Any:
        import cv2
        import numpy as np

        return cv2.imdecode(np.frombuffer(device.snapshot(), np.uint8), cv2.IMREAD_COLOR)

    yield "devices", device.devices, has(phone.serial)
    yield "get_status", device.get_status, "device"
    yield "wait_for_device", device.wait_for_device, None
    yield "start_app", lambda: device.start_app(PACKAGE), None
    yield "start_app with activity", lambda: device.start_app(PACKAGE, "Main"), None
    yield "start_app_timing", lambda: device.start_app_timing(PACKAGE, ACTIVITY) >= 0, True
    yield "getMaxXY", lambda: tuple(device.getMaxXY()), (719, 1279)
    yield "get_display_info", device.get_display_info, has("720", "1280", "'orientation': 0")
    yield "display_info", lambda: device.display_info, has("max_x", "density")
    yield "snapshot", png, is_screen
    yield "touch", lambda: touches(device.shell, lambda: device.touch((100, 200))), 1
    swipe = lambda: device.swipe((100, 900), (100, 300), 100)  # noqa: E731
    yield "swipe", lambda: touches(device.shell, swipe), 1
    enter = lambda: device.keyevent("ENTER")  # noqa: E731
    yield "keyevent", lambda: after(device.shell, enter, "keys"), ["KEYCODE_ENTER"]
    yield "text", lambda: after(device.shell, lambda: device.text("word"), "text"), "word"
    yield "getprop", lambda: device.getprop("ro.product.model"), "Virtual Phone"
    yield "sdk_version", lambda: device.sdk_version >= 30, True
    yield "push", lambda: device.push(str(phone.file), "/sdcard/sent.bin"), has("sent")
    yield "exists_file", lambda: device.exists_file("/sdcard/sent.bin"), True
    yield "file_size", lambda: device.file_size("/sdcard/sent.bin"), len(phone.sent)
    yield "pull", lambda: (device.pull("/sdcard/sent.bin", back), phone.back())[1], phone.sent
    yield "setup_forward", lambda: len(device.setup_forward("tcp:5000")), 2
    yield "get_forwards", lambda: list(device.get_forwards()), has("5000")
    yield "remove_forward", device.remove_forward, None
    yield "list_app", device.list_app, has(PACKAGE)
    yield "path_app", lambda: device.path_app(PACKAGE), f"/data/app/{PACKAGE}/base.apk"
    yield "check_app", lambda: device.check_app(PACKAGE), True
    yield "get_package_version", lambda: device.get_package_version(PACKAGE), has("1")
    yield "get_top_activity", device.get_top_activity, has(".")
    yield "is_keyboard_shown", device.is_keyboard_shown, False
    yield "is_screenon", device.is_screenon, True
    yield "is_locked", device.is_locked, False
    yield "logcat", lambda: next(device.logcat(read_timeout=3)), has("beginning of")
    yield "get_memory", device.get_memory, has("G")
    yield "get_storage", device.get_storage, has("G")
    yield "get_cpuinfo", device.get_cpuinfo, has("'cpuNum': 2")
    yield "get_cpuabi", device.get_cpuabi, has("64")
    yield "get_device_info", device.get_device_info, has("Virtual Phone")
    yield "stop_app", lambda: device.stop_app(PACKAGE), has("")
    yield "clear_app", lambda: device.clear_app(PACKAGE), has("")


def mobilerun(phone: Phone) -> Iterator[Call]:
    """mobilerun's Android driver without the Portal app, in mobilerun-core-local."""
    from mobilerun_core_local.driver.android import AndroidDriver

    os.environ["ANDROID_ADB_SERVER_PORT"] = str(phone.port)
    loop = asyncio.new_event_loop()
    driver = AndroidDriver(phone.serial, portal_mode="disabled")

    def do(name: str, *arguments: object) -> Any:
        return loop.run_until_complete(getattr(driver, name)(*arguments))

    def shell(script: str) -> str:
        return str(loop.run_until_complete(driver.device.shell(script)))

    def image() -> Any:
        import cv2
        import numpy as np

        return cv2.imdecode(np.frombuffer(do("screenshot"), np.uint8), cv2.IMREAD_COLOR)

    yield "connect", lambda: do("connect"), None
    yield "start_app", lambda: do("start_app", PACKAGE), has(PACKAGE)
    yield "tap", lambda: touches(shell, lambda: do("tap", 100, 200)), 1
    yield "swipe", lambda: touches(shell, lambda: do("swipe", 100, 900, 100, 300, 200)), 1
    write = lambda: do("input_text", "hello world")  # noqa: E731
    yield "input_text", lambda: after(shell, write, "text"), "hello world"
    press = lambda: do("press_button", "enter")  # noqa: E731
    yield "press_button", lambda: after(shell, press, "keys")[-1], "KEYCODE_ENTER"
    yield "screenshot", image, is_screen
    yield "get_ui_tree", lambda: do("get_ui_tree"), has(PACKAGE)
    yield "get_date", lambda: do("get_date"), has("20")
    yield "get_apps", lambda: do("get_apps"), has(PACKAGE)
    yield "list_packages", lambda: do("list_packages"), has(PACKAGE)
    permission = "android.permission.CAMERA"
    yield "grant_permission", lambda: do("grant_permission", PACKAGE, permission), None
    yield "clear_app_data", lambda: do("clear_app_data", PACKAGE), None
    yield "open_deep_link", lambda: do("open_deep_link", "http://127.0.0.1:1/"), None
    yield "stop_app", lambda: do("stop_app", PACKAGE), f"Stopped {PACKAGE}"


def autoglm_gui(phone: Phone) -> Iterator[Call]:
    """AutoGLM-GUI's modules `adb` and `adb_plus`."""
    from AutoGLM_GUI import adb, adb_plus
    from AutoGLM_GUI.adb import input as keyboard
    from AutoGLM_GUI.adb_plus import display

    os.environ["PATH"] = f"{Path(phone.adb).parent}:{os.environ['PATH']}"
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(phone.port)
    import subprocess

    def shell(script: str) -> str:
        command = [phone.adb, "-s", phone.serial, "shell", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def there(act: Callable[..., object], *arguments: object) -> Callable[[], int]:
        return lambda: touches(shell, lambda: act(*arguments, device_id=phone.serial, delay=0))

    def image() -> Any:
        import base64

        import cv2
        import numpy as np

        shot = adb_plus.capture_screenshot(phone.serial)
        encoded = np.frombuffer(base64.b64decode(shot.base64_data), np.uint8)
        return cv2.imdecode(encoded, cv2.IMREAD_COLOR)

    yield "list_devices", adb.list_devices, has(phone.serial)
    yield "get_current_app", lambda: adb.get_current_app(phone.serial), has("System Home")
    yield "launch", lambda: shell(f"am start -n {PACKAGE}/{ACTIVITY}"), has("Starting")
    yield "tap", there(adb.tap, 100, 200), 1
    yield "double_tap", there(adb.double_tap, 100, 200), 2
    yield "long_press", there(adb.long_press, 100, 200, 500), 1
    yield "swipe", there(adb.swipe, 100, 900, 100, 300, 200), 1
    yield "capture_screenshot", image, is_screen
    yield "get_device_serial", lambda: adb_plus.get_device_serial(phone.serial), has("VIRTUAL")
    select = lambda: display.select_primary_display(phone.serial)  # noqa: E731
    yield "select_primary_display", select, has("width=720", "height=1280")
    current = lambda: adb.get_current_app(phone.serial)  # noqa: E731
    detect = lambda: keyboard.detect_and_set_adb_keyboard(phone.serial)  # noqa: E731
    yield "detect_and_set_adb_keyboard", detect, has("/")
    write = lambda: keyboard.type_text("你好", phone.serial)  # noqa: E731
    yield "type_text", lambda: after(shell, write, "text"), "你好"
    clear = lambda: keyboard.clear_text(phone.serial)  # noqa: E731
    yield "clear_text", lambda: after(shell, clear, "text"), ""
    yield "back", lambda: (adb.back(phone.serial, 0), current())[1], "System Home"
    yield "home", lambda: (adb.home(phone.serial, 0), current())[1], "System Home"


def android_env(phone: Phone) -> Iterator[Call]:
    """AndroidEnv's adb_controller and the calls of its adb_call_parser."""
    from android_env.components import adb_call_parser, adb_controller, config_classes
    from android_env.proto import adb_pb2

    config = config_classes.AdbControllerConfig(
        adb_path=phone.adb, adb_server_port=phone.port, device_name=phone.serial, default_timeout=20
    )
    controller = adb_controller.AdbController(config)
    # After a failure it restarts the adb server, which then forgets phones connected over TCP.
    controller._restart_server = lambda timeout=None: None
    parser = adb_call_parser.AdbCallParser(controller)

    def ask(**request: Any) -> Any:
        answer = parser.parse(adb_pb2.AdbRequest(**request))
        assert answer.status == adb_pb2.AdbResponse.Status.OK, answer.error_message
        return answer

    def shell(script: str) -> str:
        return controller.execute_command(["shell", script]).decode()

    request = adb_pb2.AdbRequest
    start = request.StartActivity(full_activity=f"{PACKAGE}/{ACTIVITY}")
    yield "execute_command", lambda: controller.execute_command(["shell", "echo a"]), b"a\n"
    yield "start_activity", lambda: ask(start_activity=start), has("Starting")
    current = request.GetCurrentActivity()
    yield "get_current_activity", lambda: ask(get_current_activity=current), has(PACKAGE)
    tap = lambda: ask(tap=request.Tap(x=100, y=200))  # noqa: E731
    yield "tap", lambda: touches(shell, tap), 1
    press = request.PressButton
    enter = lambda: ask(press_button=press(button=press.Button.ENTER))  # noqa: E731
    yield "press_button", lambda: after(shell, enter, "keys"), ["KEYCODE_ENTER"]
    write = lambda: ask(input_text=request.InputText(text="word"))  # noqa: E731
    yield "input_text", lambda: after(shell, write, "text"), "word"
    orientation = request.GetOrientationRequest()
    yield "get_orientation", lambda: ask(get_orientation=orientation).get_orientation.orientation, 0
    push = request.Push(content=phone.sent, path="/sdcard/sent.bin")
    yield "push", lambda: ask(push=push), has("")
    pull = request.Pull(path="/sdcard/sent.bin")
    yield "pull", lambda: ask(pull=pull).pull.content, phone.sent
    packages = request.PackageManagerRequest
    listing = packages.List(packages=packages.List.Packages())
    yield "list packages", lambda: ask(package_manager=packages(list=listing)), has(PACKAGE)
    grant = packages.Grant(package_name=PACKAGE, permissions=["android.permission.CAMERA"])
    yield "grant", lambda: ask(package_manager=packages(grant=grant)), has("")
    clear = packages.Clear(package_name=PACKAGE)
    yield "clear", lambda: ask(package_manager=packages(clear=clear)), has("Success")
    space = request.SettingsRequest.Namespace.SYSTEM
    put = request.SettingsRequest(
        name_space=space,
        put=request.SettingsRequest.Put(key="show_touches", value="1"),
    )
    yield "settings put", lambda: ask(settings=put), has("")
    got = request.SettingsRequest(
        name_space=space, get=request.SettingsRequest.Get(key="show_touches")
    )
    yield "settings get", lambda: ask(settings=got).settings.output, b"1\n"
    dumpsys = request.DumpsysRequest(service="window", timeout_sec=5)
    yield "dumpsys", lambda: ask(dumpsys=dumpsys), has("mCurrentFocus")
    services = request.DumpsysRequest(list_only=True)
    yield "dumpsys -l", lambda: ask(dumpsys=services), has("window")
    broadcast = request.SendBroadcast(action="com.example.ACTION")
    yield "send_broadcast", lambda: ask(send_broadcast=broadcast), has("")
    stop = request.ForceStop(package_name=PACKAGE)
    yield "force_stop", lambda: ask(force_stop=stop), has("")
    pin = request.StartScreenPinning(full_activity=f"{PACKAGE}/{ACTIVITY}")
    pinned = lambda: (ask(start_activity=start), ask(start_screen_pinning=pin))  # noqa: E731
    yield "start_screen_pinning", pinned, has("")


def androidviewclient(phone: Phone) -> Iterator[Call]:
    """AndroidViewClient's AdbClient, and ViewClient with `uiautomator dump`."""
    from com.dtmilano.android.adb.adbclient import AdbClient
    from com.dtmilano.android.viewclient import ViewClient

    device = AdbClient(phone.serial, hostname="127.0.0.1", port=phone.port, reconnect=True)
    client: list[Any] = []

    def shell(script: str) -> str:
        return str(device.shell(script))

    def dump() -> object:
        os.environ["ANDROID_ADB_SERVER_PORT"] = str(phone.port)
        client.append(
            ViewClient(
                device, phone.serial, adb=phone.adb, autodump=False, useuiautomatorhelper=False
            )
        )
        return [view.getUniqueId() for view in client[0].dump(window=-1)]

    component = f"{PACKAGE}/{ACTIVITY}"
    yield "getSdkVersion", lambda: device.getSdkVersion() >= 30, True
    yield "getProperty", lambda: device.getProperty("ro.product.model"), "Virtual Phone"
    yield "startActivity", lambda: device.startActivity(component), None
    yield "resolveActivity", lambda: device.resolveActivity(PACKAGE), has(PACKAGE)
    yield "getPhysicalDisplayInfo", device.getPhysicalDisplayInfo, has("720", "1280")
    yield "getLogicalDisplayInfo", device.getLogicalDisplayInfo, has("720", "1280")
    yield "takeSnapshot", lambda: device.takeSnapshot(reconnect=True), is_screen
    yield "touch", lambda: touches(shell, lambda: device.touch(100, 200)), 1
    yield "longTouch", lambda: touches(shell, lambda: device.longTouch(100, 200, 300)), 1
    yield "drag", lambda: touches(shell, lambda: device.drag((100, 900), (100, 300), 100)), 1
    press = lambda: device.press("KEYCODE_ENTER")  # noqa: E731
    yield "press", lambda: after(shell, press, "keys"), ["KEYCODE_ENTER"]
    yield "type", lambda: after(shell, lambda: device.type("hello"), "text"), "hello"
    yield "isScreenOn", device.isScreenOn, True
    yield "isLocked", device.isLocked, False
    yield "isKeyboardShown", device.isKeyboardShown, False
    windows = lambda: [one.activity for one in device.getWindows().values()]  # noqa: E731
    yield "getWindows", windows, has(PACKAGE)
    yield "getTopActivityName", device.getTopActivityName, component
    yield "dumpsys", lambda: vars(device.dumpsys("battery")), has("level: 100")
    yield "ViewClient.dump", dump, has("id")
    yield "forceStop", lambda: device.forceStop(PACKAGE), None


CLIENTS = {
    "adb-shell": adb_shell,
    "uiautomator2": uiautomator2,
    "airtest": airtest,
    "mobilerun-core-local": mobilerun,
    "autoglm-gui": autoglm_gui,
    "android-env": android_env,
    "androidviewclient": androidviewclient,
}


def refusal(act: Callable[[], Any], expected: Any) -> str:
    """Return why the result differs from a real phone's; empty if it does not."""
    try:
        answer = act()
        if asyncio.iscoroutine(answer):
            answer = asyncio.run(answer)
    except BaseException as error:  # some clients exit
        return f"{type(error).__name__}: {error}"[:300]
    is_right = expected(answer) if callable(expected) else answer == expected
    return "" if is_right else f"answered {answer!r}"[:300]


def main() -> None:
    """Run one client."""
    logging.disable()
    name, *where = sys.argv[1:]
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirect everything a client prints to standard error
    for call, act, expected in CLIENTS[name](Phone(*where)):
        start = time.monotonic()
        line = {"call": call, "refusal": re.sub(r"\s+", " ", refusal(act, expected))}
        print(json.dumps({**line, "seconds": time.monotonic() - start}), file=report, flush=True)


if __name__ == "__main__":
    main()

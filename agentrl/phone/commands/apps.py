"""Commands about apps: am, pm, monkey, and dumpsys for what is in front."""

from agentrl.phone.commands.table import command
from agentrl.phone.phone import LAUNCHER, LAUNCHER_ACTIVITY, Phone
from agentrl.phone.shell import Call

_EXTRAS = {"--es", "-e", "--ei", "--ez", "--el", "--ef", "--esn"}
_SYSTEM_PACKAGES = ("android", "com.android.settings", LAUNCHER)


@command("am")
async def am(call: Call) -> int:
    """`am start|force-stop|kill|broadcast`."""
    verb, *arguments = call.arguments or [""]
    if verb in ("start", "start-activity"):
        return await _start(call, arguments)
    if verb in ("force-stop", "kill") and arguments:
        if arguments[-1] in call.phone.apps:
            call.phone.stop(arguments[-1])
        return 0
    if verb == "broadcast":
        call.say("Broadcasting: Intent { }")
        return call.say("Broadcast completed: result=0")
    return call.fail(f"Unknown command: {verb}", 255)


async def _start(call: Call, arguments: list[str]) -> int:
    """`am start [-S] [-W] -n package/activity [--es key value]...`."""
    component, extras, stop, wait = "", {}, False, False
    while arguments:
        option = arguments.pop(0)
        if option in _EXTRAS:
            if len(arguments) < 2:
                return call.fail(f"Error: {option} needs a key and a value", 255)
            key, value, *arguments = arguments
            extras[key] = value
        elif option in ("-n", "-a", "-c", "-d", "-f", "-t", "--user"):
            value = arguments.pop(0) if arguments else ""
            component = value if option == "-n" else component
        elif option.startswith("-"):
            stop, wait = stop or option == "-S", wait or option == "-W"
        else:
            component = option
    package, _, activity = component.partition("/")
    call.say(f"Starting: Intent {{ cmp={component} }}")
    if not _launch(call, package, activity, extras):
        return 1
    if wait:
        await call.phone.wait_until_shown()
        call.say(f"Status: ok\nLaunchState: COLD\nActivity: {component}\nComplete")
    return 0


def _launch(call: Call, package: str, activity: str, extras: dict[str, str]) -> bool:
    phone = call.phone
    known = phone.apps.get(package)
    if known is None or (activity and _full(package, activity) != _activity(phone, package)):
        call.fail("Error type 3")
        call.fail(f"Error: Activity class {{{package}/{activity}}} does not exist.")
        return False
    try:
        phone.launch(package, extras)
    except ValueError as error:
        call.fail(f"Error: {package} refuses its extras: {error}")
        return False
    return True


@command("monkey")
def monkey(call: Call) -> int:
    """`monkey -p package ... 1`: starts the app."""
    if "-p" not in call.arguments[:-1]:
        return call.fail("** Error: no package given", 251)
    package = call.arguments[call.arguments.index("-p") + 1]
    if package not in call.phone.apps:
        return call.fail("** No activities found to run, monkey aborted.", 252)
    return 0 if _launch(call, package, "", {}) and call.say("Events injected: 1") == 0 else 1


@command("pm")
def pm(call: Call) -> int:
    """`pm list packages`, `pm path`, `pm clear`, `pm grant`."""
    verb, *arguments = call.arguments or [""]
    packages = sorted((*_SYSTEM_PACKAGES, *call.phone.apps))
    if verb == "list" and arguments[:1] == ["packages"]:
        names = [a for a in arguments[1:] if not a.startswith("-")]
        listed = _SYSTEM_PACKAGES if "-s" in arguments else packages
        listed = list(call.phone.apps) if "-3" in arguments else listed
        for package in listed:
            if all(name in package for name in names):
                call.say(f"package:{package}")
        return 0
    if verb == "path" and arguments:
        known = arguments[0] in packages
        return call.say(f"package:/data/app/{arguments[0]}/base.apk") if known else 1
    if verb in ("clear", "grant", "revoke") and arguments:
        if verb == "clear" and arguments[0] in call.phone.apps:
            call.phone.stop(arguments[0])
        return call.say("Success") if verb == "clear" else 0
    return call.fail(f"Unknown command: {verb}", 255)


@command("dumpsys")
def dumpsys(call: Call) -> int:
    """The parts of `dumpsys` that programs read."""
    section = " ".join(call.arguments[:2])
    name = (call.arguments or [""])[0]
    component = _front(call.phone)
    width, height = call.phone.size
    focus = call.phone.properties.get("debug.agentrl.focus", "")
    shown = "null" if focus == "null" else f"Window{{a1b2c3 u0 {focus or component}}}"
    record = f"ActivityRecord{{d4e5f6 u0 {component} t1}}"
    if name == "window":
        call.say(f"  mCurrentFocus={shown}\n  mFocusedApp={record}")
    elif section.startswith("activity"):
        call.say(f"  mResumedActivity: {record}\n  topResumedActivity={record}")
    elif name == "display":
        call.say(f"  mViewport=DisplayViewport{{orientation=0, {width} x {height}}}")
    elif name == "power":
        call.say("  mWakefulness=Awake\n  mHoldingDisplaySuspendBlocker=true")
    elif name == "battery":
        call.say("Current Battery Service state:\n  AC powered: true\n  level: 100")
    elif name == "package":
        for package in call.phone.apps:
            call.say(f"  Package [{package}] (0a1b2c):\n    versionName=1.0")
    else:
        return call.fail(f"Can't find service: {name}", 0)
    return 0


def _full(package: str, activity: str) -> str:
    return package + activity if activity.startswith(".") else activity


def _activity(phone: Phone, package: str) -> str:
    return _full(package, phone.apps[package].app.activity)


def _front(phone: Phone) -> str:
    """`package/activity` that is seen in front."""
    package = phone.shown.front
    if package is None:
        return f"{LAUNCHER}/{LAUNCHER}{LAUNCHER_ACTIVITY}"
    return f"{package}/{_activity(phone, package)}"

"""Commands that start and stop apps: am, monkey."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from virtual_phone.apps.app_manager import AppManager
from virtual_phone.apps.installed_app import component_name
from virtual_phone.apps.system_packages import ACTIVITIES, BROWSER, DIALER, LAUNCHER, SETTINGS
from virtual_phone.commands.command_table import command
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.loopback_http_client import fetch_title
from virtual_phone.virtual_phone import VirtualPhone

_EXTRAS = frozenset((
    "--es", "-e", "--ei", "--ez", "--el", "--ef", "--ed", "--eu", "--ecn", "--eia", "--esa",
    "--ela", "--efa",
))  # fmt: skip
_VALUES = frozenset((
    "-n", "-a", "-c", "-d", "-f", "-t", "-p", "--user", "--display", "--windowingMode",
    "--activityType",
))  # fmt: skip
_CLEAR_TASK, _CLEAR_TOP = 0x8000, 0x4000000
_QUIET = ("set-debug-app", "clear-debug-app", "set-standby-bucket", "set-inactive")
_DELIVERED = (
    "Warning: Activity not started, intent has been delivered to currently running top-most "
    "instance."
)
_BROUGHT_TO_FRONT = "Warning: Activity not started, its current task has been brought to the front"


@dataclass(slots=True, kw_only=True)
class Intent:
    """Intent to start or broadcast."""

    component: str = ""
    action: str = ""
    category: str = ""
    data: str = ""
    package: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    bits: int = 0
    """Value of `-f`."""
    flags: set[str] = field(default_factory=set)
    """Options without a value."""

    @property
    def starts_afresh(self) -> bool:
        """Whether to stop the app or clear its task before starting it."""
        cleared = {"-S", "--activity-clear-task", "--activity-clear-top"}
        return bool(self.flags & cleared or self.bits & (_CLEAR_TASK | _CLEAR_TOP))

    def __str__(self) -> str:
        """Format the intent as `am` prints it."""
        named = {"act": self.action, "cat": self.category and f"[{self.category}]"}
        named |= {"dat": self.data, "pkg": self.package, "cmp": self.component}
        parts = [f"{key}={value}" for key, value in named.items() if value]
        return f"Intent {{ {' '.join([*parts, *(['(has extras)'] if self.extras else [])])} }}"


def read_intent(arguments: list[str]) -> Intent:
    """Parse the arguments of `am`."""
    intent, left = Intent(), iter(arguments)
    names = {"-n": "component", "-a": "action", "-c": "category", "-d": "data", "-p": "package"}
    for option in left:
        if option == "--esn":
            intent.extras[_next(left, option)] = ""
        elif option in _EXTRAS:
            key = _next(left, option)
            intent.extras[key] = _next(left, option)
        elif option in _VALUES:
            value = _next(left, option)
            if option == "-f":
                try:
                    intent.bits = int(value, 0)
                except ValueError:
                    raise ValueError(f'For input string: "{value[:40]}"') from None
            elif option in names:
                setattr(intent, names[option], value)
        elif option.startswith("-"):
            intent.flags.add(option)
        elif "/" in option and "://" not in option:
            intent.component = option
        elif ":" in option:
            intent.data = option
        else:
            intent.package = option
    return intent


def _next(left: Iterator[str], option: str) -> str:
    value = next(left, None)
    if value is None:
        raise ValueError(f"Argument expected after {option!r}")
    return value


@command("am")
async def am(ctx: CommandContext) -> int:
    """`am start|force-stop|kill|broadcast|startservice|instrument|stack list|get-current-user`."""
    verb, *arguments = ctx.arguments or [""]
    if verb == "stack":
        return _stack(ctx, arguments)
    if verb == "task":
        return _task(ctx, arguments)
    if verb in _QUIET:
        return 0
    if verb == "get-standby-bucket":
        return ctx.print("10")  # active
    if verb == "get-current-user":
        return ctx.print(ctx.phone.faults.get("user") or "0")
    try:
        intent = read_intent(arguments)
    except ValueError as error:
        return ctx.fail(f"Error: {error}", 255)
    if verb in ("start", "start-activity"):
        return await _start(ctx, intent)
    if verb in ("force-stop", "stop-app") and intent.package:
        if ctx.phone.tasks.find(intent.package) is not None:
            ctx.phone.tasks.stop(intent.package)
        return 0
    if verb == "kill-all" or (verb == "kill" and intent.package):
        tasks = ctx.phone.tasks
        for name in tasks.running - {tasks.front}:  # background processes
            if intent.package in ("", name):
                tasks.stop(name)
        return 0
    if verb == "broadcast":
        ctx.print(f"Broadcasting: {intent}")
        ctx.phone.input.receive_broadcast(intent.action, intent.extras)
        return ctx.print("Broadcast completed: result=0")  # whether or not anything listens
    if verb in ("startservice", "start-service", "startforegroundservice"):
        ctx.print(f"Starting service: {intent}")
        return ctx.fail("Error: Not found; no service started.", 255)
    if verb == "instrument":
        return ctx.print(f"INSTRUMENTATION_FAILED: {intent.component}")
    return ctx.fail(f"Unknown command: {verb}", 255)


def _stack(ctx: CommandContext, arguments: list[str]) -> int:
    """`am stack list`: the tasks, front to back."""
    if arguments != ["list"]:
        return ctx.fail(f"Error: unknown command '{' '.join(arguments)[:100]}'", 255)
    tasks, (width, height) = ctx.phone.tasks, ctx.phone.geometry.size
    bounds = f"bounds=[0,0][{width},{height}]"
    components = tasks.components
    for task, component in reversed(list(enumerate(components, 1))):
        is_visible = str(task == len(components)).lower()
        ctx.print(f"RootTask id={task} {bounds} displayId=0 userId=0")
        ctx.print(
            f"  taskId={task}: {component} {bounds} userId=0 visible={is_visible} "
            f"topActivity=ComponentInfo{{{component}}}\n"
        )
    return 0


def _task(ctx: CommandContext, arguments: list[str]) -> int:
    """`am task lock ID | stop`: pin a task from `am stack list`, so that no key leaves it."""
    tasks, wanted = ctx.phone.tasks, (arguments[1:] or [""])[0]
    if arguments[:1] != ["lock"] or not (
        (wanted.isascii() and wanted.isdecimal()) or wanted == "stop"
    ):
        return ctx.fail(f"Error: unknown command '{' '.join(arguments)[:100]}'", 255)
    at = 0 if wanted == "stop" else int(wanted[:9]) - 2
    tasks.pinned = tasks.stack[at] if wanted != "stop" and 0 <= at < len(tasks.stack) else None
    return ctx.print(f"Activity manager is {'' if tasks.pinned else 'not '}in lockTaskMode")


async def _start(ctx: CommandContext, intent: Intent) -> int:
    """`am start [-S] [-W] [-n package/activity] [-a action] [-d uri] [--es key value]...`."""
    phone = ctx.phone
    slow_s = phone.faults.draw("slow_start_s")
    # `-S` stops the app even if it cannot be started afterwards.
    package, _, activity = intent.component.partition("/")
    if "-S" in intent.flags and (package or intent.package):
        ctx.print(f"Stopping: {package or intent.package}")
        phone.tasks.end_process(package or intent.package)
    ctx.print(f"Starting: {intent}")
    if slow_s:
        await asyncio.sleep(slow_s)
    package = package or intent.package
    # An installed app gets the URL as an extra; the built-in browser opens a page for it.
    viewer = find_viewer(phone.tasks, intent)
    if viewer in phone.tasks.apps and package in ("", viewer):
        intent.extras["data"] = intent.data
        intent.flags.add("--activity-clear-top")
        state = _start_activity(ctx, viewer, activity, intent)
    elif package and (viewer, package) != (BROWSER, BROWSER):
        state = _start_activity(ctx, package, activity, intent)
    else:
        state = _resolve(phone, intent)
        if not state:
            ctx.fail(f"Error: Activity not started, unable to resolve {intent}")
    if not state:
        return 1
    if "-W" in intent.flags:
        await phone.display.wait_until_idle()
        component = phone.tasks.component
        ctx.print(f"Status: ok\nLaunchState: {state}\nActivity: {component}\nTotalTime: 1")
        ctx.print("WaitTime: 1\nComplete")
    return 0


def find_viewer(tasks: AppManager, intent: Intent) -> str:
    """Return the package that opens the URL of a VIEW intent, or ''."""
    scheme = intent.data.partition(":")[0].lower()
    if not intent.action.endswith(".VIEW") or not scheme:
        return ""
    wanted = intent.component.partition("/")[0] or intent.package
    for package, app in tasks.apps.items():
        opens = scheme in getattr(app.app, "schemes", ()) and package not in tasks.disabled
        if opens and wanted in ("", package):
            return package
    is_page = scheme in ("http", "https") and wanted in ("", BROWSER)
    return BROWSER if is_page and BROWSER not in tasks.disabled else ""


def _resolve(phone: VirtualPhone, intent: Intent) -> str:
    """Resolve and start an intent that names no package; return the launch state, '' on failure."""
    if intent.category.endswith(".HOME"):
        phone.tasks.go_home()
        return "HOT"
    if find_viewer(phone.tasks, intent) == BROWSER:
        phone.tasks.bring_to_front(BROWSER, text=intent.data)
        phone.in_background(_load(phone, intent.data))
        return "COLD"
    if intent.action in ("android.intent.action.DIAL", "android.intent.action.CALL"):
        phone.tasks.bring_to_front(DIALER, text=intent.data)
        return "COLD"
    if intent.action.startswith("android.settings."):
        phone.tasks.bring_to_front(SETTINGS, text=intent.action)
        return "COLD"
    return ""


async def _load(phone: VirtualPhone, url: str) -> None:
    """Load a page and show it if the browser is still in front."""
    title = await fetch_title(phone.network, url)
    if phone.tasks.front == BROWSER:
        phone.tasks.bring_to_front(BROWSER, text=f"{url}  {title}")


def _start_activity(ctx: CommandContext, package: str, activity: str, intent: Intent) -> str:
    """Start an app, or bring its task to the front as it was left.

    Returns:
        The launch state that `am start -W` prints, or '' after an error.
    """
    tasks = ctx.phone.tasks
    component = component_name(package, activity) if activity else ""
    app = tasks.apps.get(package)
    if app is None:
        known = ACTIVITIES.get(package, "")
        is_known = package == LAUNCHER or (
            bool(known) and component in ("", component_name(package, known))
        )
    else:
        is_known = component in ("", *app.components)
    if not is_known or package in tasks.disabled:
        ctx.fail("Error type 3")
        ctx.fail(f"Error: Activity class {{{package}/{activity}}} does not exist.")
        return ""
    is_in_front, is_running = tasks.front == package, package in tasks.running
    # Android leaves a running activity as it is, without passing it the new extras.
    if not intent.starts_afresh and tasks.reopen(package, component):
        ctx.fail(_DELIVERED if is_in_front else _BROUGHT_TO_FRONT)
        return "HOT"
    if app is None:
        tasks.stop(package)
        tasks.bring_to_front(package)
        return "COLD"
    try:
        tasks.launch(package, intent.extras)
    except ValueError as error:
        ctx.fail(f"Error: {package} refuses its extras: {error}")
        return ""
    return "WARM" if is_running else "COLD"


@command("monkey")
def monkey(ctx: CommandContext) -> int:
    """`monkey -p package ... 1`: start the app, or bring it to the front."""
    if "-p" not in ctx.arguments[:-1]:
        return ctx.fail("** Error: no package given", 251)
    package = ctx.arguments[ctx.arguments.index("-p") + 1]
    tasks = ctx.phone.tasks
    if package in tasks.disabled or package not in {*tasks.apps, *ACTIVITIES}:
        return ctx.fail("** No activities found to run, monkey aborted.", 252)
    tasks.bring_to_front(package)
    return ctx.print("Events injected: 1")

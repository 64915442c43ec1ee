"""Commands that start and stop apps: am, monkey."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentrl.virtual_phone.apps.app_tasks import HOME
from agentrl.virtual_phone.apps.installed_app import component_name
from agentrl.virtual_phone.apps.system_apps import ACTIVITIES, BROWSER, LAUNCHER, SETTINGS
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.network import fetch_title
from agentrl.virtual_phone.virtual_phone import VirtualPhone

_EXTRAS = frozenset((
    "--es", "-e", "--ei", "--ez", "--el", "--ef", "--ed", "--eu", "--ecn", "--eia", "--esa",
    "--ela", "--efa",
))  # fmt: skip
_VALUES = frozenset((
    "-n", "-a", "-c", "-d", "-f", "-t", "-p", "--user", "--display", "--windowingMode",
    "--activityType",
))  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Intent:
    """What `am` starts or broadcasts."""

    component: str = ""
    action: str = ""
    category: str = ""
    data: str = ""
    package: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        """As `am` prints it."""
        named = {"act": self.action, "cat": self.category and f"[{self.category}]"}
        named |= {"dat": self.data, "pkg": self.package, "cmp": self.component}
        parts = [f"{key}={value}" for key, value in named.items() if value]
        return f"Intent {{ {' '.join([*parts, *(['(has extras)'] if self.extras else [])])} }}"


def read_intent(arguments: list[str]) -> Intent:
    """Parse the arguments of `am`.

    Raises:
        ValueError: the value of an option is missing.
    """
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
            if option in names:
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
    if verb == "get-current-user":
        return ctx.print("0")
    try:
        intent = read_intent(arguments)
    except ValueError as error:
        return ctx.fail(f"Error: {error}", 255)
    if verb in ("start", "start-activity"):
        return await _start(ctx, intent)
    if verb in ("force-stop", "kill", "stop-app") and intent.package:
        if ctx.phone.tasks.find(intent.package) is not None:
            ctx.phone.tasks.stop(intent.package)
        return 0
    if verb == "kill-all":
        return 0
    if verb == "broadcast":
        ctx.print(f"Broadcasting: {intent}")
        result = ctx.phone.input.receive_broadcast(intent.action, intent.extras)
        return ctx.print(f"Broadcast completed: {result}")
    if verb in ("startservice", "start-service", "startforegroundservice"):
        ctx.print(f"Starting service: {intent}")
        return ctx.fail("Error: Not found; no service started.", 255)
    if verb == "instrument":
        return ctx.print(f"INSTRUMENTATION_FAILED: {intent.component}")
    return ctx.fail(f"Unknown command: {verb}", 255)


def _stack(ctx: CommandContext, arguments: list[str]) -> int:
    """`am stack list`: the tasks, the one in front first."""
    if arguments != ["list"]:
        return ctx.fail(f"Error: unknown command '{' '.join(arguments)[:100]}'", 255)
    tasks, (width, height) = ctx.phone.tasks, ctx.phone.geometry.size
    bounds = f"bounds=[0,0][{width},{height}]"
    found = [tasks.find(package) for package in tasks.stack]
    components = [HOME, *(one.component for one in found if one is not None)]
    for task, component in reversed(list(enumerate(components, 1))):
        is_visible = str(task == len(components)).lower()
        ctx.print(f"RootTask id={task} {bounds} displayId=0 userId=0")
        ctx.print(
            f"  taskId={task}: {component} {bounds} userId=0 visible={is_visible} "
            f"topActivity=ComponentInfo{{{component}}}\n"
        )
    return 0


def _task(ctx: CommandContext, arguments: list[str]) -> int:
    """`am task lock ID | stop`: pin a task of `am stack list`, so that no key leaves it."""
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
    ctx.print(f"Starting: {intent}")
    if slow_s:
        await asyncio.sleep(slow_s)
    if intent.component:
        package, _, activity = intent.component.partition("/")
        if not launch(ctx, package, activity, intent.extras):
            return 1
    elif not _resolve(phone, intent):
        ctx.fail(f"Error: Activity not started, unable to resolve {intent}")
        return 1
    if "-W" in intent.flags:
        await phone.display.wait_until_idle()
        component = phone.tasks.component
        ctx.print(f"Status: ok\nLaunchState: COLD\nActivity: {component}\nTotalTime: 1")
        ctx.print("WaitTime: 1\nComplete")
    return 0


def _resolve(phone: VirtualPhone, intent: Intent) -> bool:
    """Resolve and start an intent without a component; returns whether that succeeded."""
    package = intent.package
    if intent.category.endswith(".HOME"):
        phone.tasks.go_home()
    elif intent.action.endswith(".VIEW") and intent.data.startswith(("http://", "https://")):
        phone.tasks.bring_to_front(BROWSER, text=intent.data)
        phone.in_background(_load(phone, intent.data))
    elif intent.action.startswith("android.settings."):
        phone.tasks.bring_to_front(SETTINGS, text=intent.action)
    elif package in phone.tasks.apps:
        phone.tasks.launch(package, intent.extras)
    elif package in ACTIVITIES:
        phone.tasks.bring_to_front(package)
    else:
        return False
    return True


async def _load(phone: VirtualPhone, url: str) -> None:
    """Load a page in the browser, and show it if the browser is still in front."""
    title = await fetch_title(phone.network, url)
    if phone.tasks.front == BROWSER:
        phone.tasks.bring_to_front(BROWSER, text=f"{url}  {title}")


def launch(ctx: CommandContext, package: str, activity: str, extras: dict[str, str]) -> bool:
    """Start an app or print an error; returns whether the app was started."""
    tasks = ctx.phone.tasks
    known = tasks.apps.get(package)
    if known is None and _is_of_the_system(package, activity):
        tasks.bring_to_front(package)
        return True
    component = component_name(package, activity)
    if known is None or not known.is_enabled or (activity and component not in known.components):
        ctx.fail("Error type 3")
        ctx.fail(f"Error: Activity class {{{package}/{activity}}} does not exist.")
        return False
    try:
        tasks.launch(package, extras)
    except ValueError as error:
        ctx.fail(f"Error: {package} refuses its extras: {error}")
        return False
    return True


def _is_of_the_system(package: str, activity: str) -> bool:
    if package == LAUNCHER:
        return True
    known = ACTIVITIES.get(package)
    return known is not None and (
        not activity or component_name(package, activity) == component_name(package, known)
    )


@command("monkey")
def monkey(ctx: CommandContext) -> int:
    """`monkey -p package ... 1`: start the app."""
    if "-p" not in ctx.arguments[:-1]:
        return ctx.fail("** Error: no package given", 251)
    package = ctx.arguments[ctx.arguments.index("-p") + 1]
    if package not in ctx.phone.tasks.apps:
        return ctx.fail("** No activities found to run, monkey aborted.", 252)
    return 0 if launch(ctx, package, "", {}) and ctx.print("Events injected: 1") == 0 else 1

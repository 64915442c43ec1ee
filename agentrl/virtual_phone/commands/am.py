"""Commands that start and stop apps: am, monkey."""

import asyncio

from agentrl.virtual_phone.apps.installed_app import component_name
from agentrl.virtual_phone.apps.intent import Intent, read_intent
from agentrl.virtual_phone.apps.system_apps import ACTIVITIES, BROWSER, LAUNCHER, SETTINGS
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.phone import VirtualPhone
from agentrl.virtual_phone.shell.command_context import CommandContext
from agentrl.virtual_phone.system.adb_keyboard import broadcast
from agentrl.virtual_phone.system.http_browser import fetch_title


@command("am")
async def am(call: CommandContext) -> int:
    """`am start|force-stop|kill|broadcast`."""
    verb, *arguments = call.arguments or [""]
    try:
        intent = read_intent(arguments)
    except ValueError as error:
        return call.fail(f"Error: {error}", 255)
    if verb in ("start", "start-activity"):
        return await _start(call, intent)
    if verb in ("force-stop", "kill", "stop-app") and intent.package:
        if call.phone.tasks.find(intent.package) is not None:
            call.phone.tasks.stop(intent.package)
        return 0
    if verb == "kill-all":
        return 0
    if verb == "broadcast":
        call.say(f"Broadcasting: {intent}")
        result = broadcast(call.phone, intent.action, intent.extras)
        return call.say(f"Broadcast completed: {result}")
    return call.fail(f"Unknown command: {verb}", 255)


async def _start(call: CommandContext, intent: Intent) -> int:
    """`am start [-S] [-W] [-n package/activity] [-a action] [-d uri] [--es key value]...`."""
    phone = call.phone
    slow_s = phone.faults.number("slow_start_s")
    call.say(f"Starting: {intent}")
    if slow_s:
        await asyncio.sleep(slow_s)
    if intent.component:
        package, _, activity = intent.component.partition("/")
        if not launch(call, package, activity, intent.extras):
            return 1
    elif not _resolve(phone, intent):
        call.fail(f"Error: Activity not started, unable to resolve {intent}")
        return 1
    if "-W" in intent.flags:
        await phone.display.at_rest()
        component = phone.tasks.component
        call.say(f"Status: ok\nLaunchState: COLD\nActivity: {component}\nTotalTime: 1")
        call.say("WaitTime: 1\nComplete")
    return 0


def _resolve(phone: VirtualPhone, intent: Intent) -> bool:
    """Resolve and start an intent without a component; returns whether that succeeded."""
    package = intent.package
    if intent.category.endswith(".HOME"):
        phone.tasks.go_home()
    elif intent.action.endswith(".VIEW") and intent.data.startswith(("http://", "https://")):
        phone.tasks.bring(BROWSER, text=intent.data)
        phone.in_background(_load(phone, intent.data))
    elif intent.action.startswith("android.settings."):
        phone.tasks.bring(SETTINGS, text=intent.action)
    elif package in phone.tasks.apps:
        phone.tasks.launch(package, intent.extras)
    elif package in ACTIVITIES:
        phone.tasks.bring(package)
    else:
        return False
    return True


async def _load(phone: VirtualPhone, url: str) -> None:
    """Load a page in the browser, and show it if the browser is still in front."""
    title = await fetch_title(phone.network, url)
    if phone.tasks.front == BROWSER:
        phone.tasks.bring(BROWSER, text=f"{url}  {title}")


def launch(call: CommandContext, package: str, activity: str, extras: dict[str, str]) -> bool:
    """Start an app or print an error; returns whether the app was started."""
    tasks = call.phone.tasks
    known = tasks.apps.get(package)
    if known is None and _is_of_the_system(package, activity):
        tasks.bring(package)
        return True
    component = component_name(package, activity)
    if known is None or not known.is_enabled or (activity and component not in known.components):
        call.fail("Error type 3")
        call.fail(f"Error: Activity class {{{package}/{activity}}} does not exist.")
        return False
    try:
        tasks.launch(package, extras)
    except ValueError as error:
        call.fail(f"Error: {package} refuses its extras: {error}")
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
def monkey(call: CommandContext) -> int:
    """`monkey -p package ... 1`: start the app."""
    if "-p" not in call.arguments[:-1]:
        return call.fail("** Error: no package given", 251)
    package = call.arguments[call.arguments.index("-p") + 1]
    if package not in call.phone.tasks.apps:
        return call.fail("** No activities found to run, monkey aborted.", 252)
    return 0 if launch(call, package, "", {}) and call.say("Events injected: 1") == 0 else 1

"""Commands about the phone itself: properties, settings, log, and the shell's own."""

import asyncio

from agentrl.phone.commands.table import command
from agentrl.phone.files import EPOCH_S
from agentrl.phone.shell import Call, Exit


@command("getprop")
def getprop(call: Call) -> int:
    """`getprop [key [default]]`."""
    properties = call.phone.properties
    if not call.arguments:
        for key, value in sorted(properties.items()):
            call.say(f"[{key}]: [{value}]")
        return 0
    key, default = (*call.arguments, "")[:2]
    return call.say(properties.get(key, default))


@command("setprop")
def setprop(call: Call) -> int:
    """`setprop key value`; `debug.agentrl.*` are the phone's faults."""
    if len(call.arguments) != 2:
        return call.fail("usage: setprop NAME VALUE")
    key, value = call.arguments
    call.phone.properties[key] = value
    if key == "debug.agentrl.power":
        call.phone.on_power(value)
    return 0


@command("settings")
def settings(call: Call) -> int:
    """`settings get|put|delete|list namespace [key [value]]`."""
    verb, *rest = call.arguments or [""]
    stored = call.phone.settings
    if verb == "get" and len(rest) == 2:
        return call.say(stored.get((rest[0], rest[1]), "null"))
    if verb == "put" and len(rest) == 3:
        stored[rest[0], rest[1]] = rest[2]
        return 0
    if verb == "delete" and len(rest) == 2:
        found = stored.pop((rest[0], rest[1]), None) is not None
        return call.say(f"Deleted {int(found)} rows")
    if verb == "list" and len(rest) == 1:
        for (space, key), value in sorted(stored.items()):
            if space == rest[0]:
                call.say(f"{key}={value}")
        return 0
    return call.fail(f"Invalid command: settings {' '.join(call.arguments)}", 255)


@command("logcat")
def logcat(call: Call) -> int:
    """`logcat -d` and `logcat -c`; it always ends, as with `-d`."""
    if {"-c", "--clear"} & set(call.arguments):
        call.phone.log_lines.clear()
        return 0
    call.say("--------- beginning of main")
    for line in call.phone.log_lines:
        call.say(line)
    return 0


@command("date")
def date(call: Call) -> int:
    """The time at which every phone stands still."""
    return call.say(str(EPOCH_S))


@command("id", "whoami")
def id_(call: Call) -> int:
    """Who the shell is."""
    return call.say("uid=2000(shell) gid=2000(shell)" if call.name == "id" else "shell")


@command("sleep")
async def sleep(call: Call) -> int:
    """`sleep seconds`."""
    try:
        seconds = float((call.arguments or [""])[0])
    except ValueError:
        return call.fail(f"sleep: not a number: {' '.join(call.arguments)}")
    await asyncio.sleep(seconds)
    return 0


@command("export")
def export(call: Call) -> int:
    """`export NAME=value`."""
    for argument in call.arguments:
        name, equals, value = argument.partition("=")
        if equals:
            call.environment[name] = value
    return 0


@command("exit")
def exit_(call: Call) -> int:
    """`exit [code]`."""
    code = (call.arguments or ["0"])[0]
    raise Exit(int(code) & 0xFF if code.isdigit() else 2)


@command("true", ":", "exec", "svc", "ime", "cmd")
def true(call: Call) -> int:
    """Do nothing and succeed."""
    return 0


@command("false")
def false(call: Call) -> int:
    """Do nothing and fail."""
    return 1


@command("reboot")
def reboot(call: Call) -> int:
    """Drop the connection and start again."""
    call.phone.on_power("reboot")
    return 0

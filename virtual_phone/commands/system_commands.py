"""Commands for the phone itself: properties, settings, date, power, snapshots and others."""

import itertools
import json
import re
import time

from virtual_phone import snapshot
from virtual_phone.commands.command_options import split_options, without_user
from virtual_phone.commands.command_table import command
from virtual_phone.faults import faults
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.system.phone_settings import NAMESPACES
from virtual_phone.virtual_phone import QUICK_REBOOT_S

_MAX_PROPERTY_LENGTH = 91
_MAX_PROPERTIES = 1000
_SETTINGS = "content://settings/"
_RESET_MODES = ("untrusted_defaults", "untrusted_clear", "trusted_defaults")
_SHELL_PACKAGE = "com.android.shell"
_WHERE = re.compile(r"name=['\"]([^'\"]*)['\"]")


@command("getprop")
def getprop(ctx: CommandContext) -> int:
    """`getprop [key [default]]`."""
    phone = ctx.phone
    now = {faults.PREFIX + name: value for name, value in phone.faults}
    if not ctx.arguments:
        for key, value in sorted({**phone.properties, **now}.items()):
            ctx.print(f"[{key}]: [{value}]")
        return 0
    key, default = (*ctx.arguments, "")[:2]
    name = faults.name_of(key)
    value = phone.properties.get(key, default) if name is None else phone.faults.get(name)
    return ctx.print(value or default)


@command("setprop")
def setprop(ctx: CommandContext) -> int:
    """`setprop key value`; `debug.agentrl.fault.*` sets faults."""
    if len(ctx.arguments) != 2:
        return ctx.fail("usage: setprop NAME VALUE")
    key, value = ctx.arguments
    properties, name = ctx.phone.properties, faults.name_of(key)
    try:
        if name is not None:
            ctx.phone.faults.set(name, value)
            return 0
    except ValueError as error:
        return ctx.fail(f"setprop: {error}")
    many = len(properties) >= _MAX_PROPERTIES and key not in properties
    if key.startswith("ro.") or not key or many or len(key) + len(value) > 2 * _MAX_PROPERTY_LENGTH:
        return ctx.fail(f"Failed to set property '{key[:100]}' to '{value[:100]}'.")
    properties[key] = value
    return 0


@command("settings")
def settings(ctx: CommandContext) -> int:
    """`settings get|put|delete|list|reset namespace [key [value]]`."""
    verb, *rest = without_user(ctx.arguments) or [""]
    phone = ctx.phone
    if rest and rest[0] not in NAMESPACES:
        return ctx.fail(f"Invalid namespace '{rest[0][:100]}'", 255)
    if verb == "get" and len(rest) == 2:
        value = phone.settings.get(rest[0], rest[1])
        return ctx.print("null" if value is None else value)
    if verb == "put" and len(rest) >= 3:
        try:
            phone.put_setting(rest[0], rest[1], rest[2])
        except ValueError as error:
            return ctx.fail(f"Error: {error}", 255)
        return 0
    if verb == "delete" and len(rest) == 2:
        return ctx.print(f"Deleted {int(phone.settings.delete(rest[0], rest[1]))} rows")
    if verb == "list" and len(rest) == 1:
        for key, value in phone.settings.in_namespace(rest[0]):
            ctx.print(f"{key}={value}")
        return 0
    if verb == "reset" and len(rest) == 2:
        # All settings on the phone were set by the shell's package.
        if rest[1] in (*_RESET_MODES, _SHELL_PACKAGE):
            phone.reset_settings(rest[0])
        return 0
    return ctx.fail(f"Invalid command: settings {' '.join(ctx.arguments)[:200]}", 255)


@command("locksettings")
def locksettings(ctx: CommandContext) -> int:
    """`locksettings set-disabled true|false | get-disabled`: switch the lock screen off or on."""
    power = ctx.phone.power
    if ctx.arguments[:1] == ["get-disabled"]:
        return ctx.print("false" if power.has_lock else "true")
    if ctx.arguments[:1] == ["set-disabled"] and ctx.arguments[1:] in (["true"], ["false"]):
        power.has_lock = ctx.arguments[1] == "false"
        return ctx.print(f"Lock screen disabled set to {ctx.arguments[1]}")
    return ctx.fail(f"Unknown command: {' '.join(ctx.arguments)[:200]}", 255)


@command("date")
def date(ctx: CommandContext) -> int:
    """`date [-u] [-d @SECONDS] [+FORMAT]`, by the phone's clock, which only the system may set."""
    options, words = split_options(ctx, "ud:s:")
    now_s = ctx.phone.clock.now_s()
    if "d" in options:
        given = options["d"].removeprefix("@")
        if not re.fullmatch(r"\d{1,11}", given, re.ASCII):
            raise UsageError(f"bad date {options['d']!r}")
        now_s = int(given)
    elif "s" in options or (words and not words[0].startswith("+")):
        return ctx.fail("date: cannot set date: Operation not permitted")
    form = words[0][1:].replace("\0", "") if words else "%a %b %e %H:%M:%S GMT %Y"
    values = {"%": "%%", "s": str(int(now_s)), "N": f"{int(now_s % 1 * 1e9):09d}", "Z": "GMT"}
    values |= {"z": "+0000"}
    form = re.sub(r"%([%sNZz])", lambda found: values[found[1]], form)
    return ctx.print(time.strftime(form, time.gmtime(now_s)))


@command("id", "whoami")
def id_(ctx: CommandContext) -> int:
    """`id`: the user of the shell."""
    return ctx.print("uid=2000(shell) gid=2000(shell)" if ctx.name == "id" else "shell")


@command("uname")
def uname(ctx: CommandContext) -> int:
    """`uname [-a | -m]`."""
    if "-a" in ctx.arguments:
        return ctx.print("Linux localhost 6.1.0-virtual #1 SMP PREEMPT x86_64 Toybox")
    return ctx.print("x86_64" if "-m" in ctx.arguments else "Linux")


@command("getenforce")
def getenforce(ctx: CommandContext) -> int:
    """`getenforce`: the SELinux mode."""
    return ctx.print("Enforcing")


@command("uptime")
def uptime(ctx: CommandContext) -> int:
    """`uptime`: how long the phone has been running."""
    clock = ctx.phone.clock
    minutes = int(clock.uptime_s()) // 60
    span = f"{minutes} min" if minutes < 60 else f"{minutes // 60:2}:{minutes % 60:02}"
    now = time.strftime("%H:%M:%S", time.gmtime(clock.now_s()))
    return ctx.print(f" {now} up {span},  0 users,  load average: 0.10, 0.12, 0.09")


@command("reboot")
def reboot(ctx: CommandContext) -> int:
    """Reboot the phone, which drops the connection."""
    ctx.phone.on_power("reboot", QUICK_REBOOT_S)
    return 0


@command("content")
def content(ctx: CommandContext) -> int:
    """`content query|insert --uri content://settings/NAMESPACE[/KEY] ...`."""
    verb, *arguments = ctx.arguments or [""]
    if verb not in ("query", "insert") or "--uri" not in arguments[:-1]:
        return ctx.fail("usage: adb shell content [subcommand] [options]", 1)
    uri = arguments[arguments.index("--uri") + 1]
    namespace, _, key = uri.removeprefix(_SETTINGS).partition("/")
    if verb == "insert":
        return _put(ctx, arguments, namespace) if uri.startswith(_SETTINGS) else 0
    where = arguments[arguments.index("--where") + 1] if "--where" in arguments[:-1] else ""
    found = _WHERE.search(where)
    key = found[1] if found else key
    rows = ctx.phone.settings.in_namespace(namespace) if uri.startswith(_SETTINGS) else []
    rows = [row for row in rows if not key or row[0] == key]
    for number, (name, value) in enumerate(rows):
        ctx.print(f"Row: {number} _id={number + 1}, name={name}, value={value}")
    return 0 if rows else ctx.print("No result found.")


def _put(ctx: CommandContext, arguments: list[str], namespace: str) -> int:
    """Set a setting from `--bind name:s:KEY --bind value:s:VALUE`."""
    pairs = itertools.pairwise(arguments)
    bound = [value.split(":", 2) for option, value in pairs if option == "--bind"]
    named = {name: rest[1] for name, *rest in bound if len(rest) == 2}
    if "name" not in named or "value" not in named:
        return ctx.fail("Error: name and value must be bound")
    try:
        ctx.phone.put_setting(namespace, named["name"], named["value"])
    except ValueError as error:
        return ctx.fail(f"Error: {error}")
    return 0


@command("agentrl")
async def agentrl(ctx: CommandContext) -> int:
    """`cmd agentrl dump | load | seen`: snapshots and command history.

    `dump` prints a snapshot as JSON; `load` restores one, of any phone. `seen` prints the last
    commands run by the shell, oldest first, and clears the list.
    """
    if ctx.arguments == ["dump"]:
        try:
            state = snapshot.take(ctx.phone)
        except ValueError as error:
            return ctx.fail(f"Error: {error}")
        return ctx.print(json.dumps(state, ensure_ascii=False))
    if ctx.arguments == ["load"]:
        try:
            snapshot.restore(ctx.phone, json.loads(await ctx.read_all()))
        except (ValueError, RecursionError) as error:
            return ctx.fail(f"Error: invalid snapshot: {error}")
        return 0
    if ctx.arguments == ["seen"]:
        *seen, _ = ctx.phone.command_history
        ctx.phone.command_history.clear()
        return ctx.print(json.dumps(seen, ensure_ascii=False))
    return ctx.fail(f"Unknown command: {' '.join(ctx.arguments)}", 255)

"""`content`: content providers, of which only the settings hold anything."""

import itertools
import re

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.command_context import CommandContext

_SETTINGS = "content://settings/"
_WHERE = re.compile(r"name=['\"]([^'\"]*)['\"]")


@command("content")
def content(call: CommandContext) -> int:
    """`content query|insert|delete --uri content://settings/NAMESPACE[/KEY] ...`."""
    verb, *arguments = call.arguments or [""]
    if verb not in ("query", "insert", "update", "delete") or "--uri" not in arguments[:-1]:
        return call.fail("usage: adb shell content [subcommand] [options]", 1)
    uri = arguments[arguments.index("--uri") + 1]
    namespace, _, key = uri.removeprefix(_SETTINGS).partition("/")
    if verb in ("insert", "update"):
        return _put(call, arguments, namespace) if uri.startswith(_SETTINGS) else 0
    where = arguments[arguments.index("--where") + 1] if "--where" in arguments[:-1] else ""
    found = _WHERE.search(where)
    key = found[1] if found else key
    rows = call.phone.settings.of(namespace) if uri.startswith(_SETTINGS) else []
    rows = [row for row in rows if not key or row[0] == key]
    if verb == "delete":
        for name, _ in rows:
            call.phone.settings.delete(namespace, name)
        return 0
    for number, (name, value) in enumerate(rows):
        call.say(f"Row: {number} _id={number + 1}, name={name}, value={value}")
    return 0 if rows else call.say("No result found.")


def _put(call: CommandContext, arguments: list[str], namespace: str) -> int:
    """`--bind name:s:KEY --bind value:s:VALUE`."""
    pairs = itertools.pairwise(arguments)
    bound = [value.split(":", 2) for option, value in pairs if option == "--bind"]
    named = {name: rest[1] for name, *rest in bound if len(rest) == 2}
    if "name" not in named or "value" not in named:
        return call.fail("Error: name and value must be bound")
    try:
        call.phone.put_setting(namespace, named["name"], named["value"])
    except ValueError as error:
        return call.fail(f"Error: {error}")
    return 0

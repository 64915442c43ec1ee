"""`cmd agentrl`: features that only virtual phones have."""

import json

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system import snapshot

_MOST_SNAPSHOTS = 32


@command("agentrl")
async def agentrl(call: CommandContext) -> int:
    """`save NAME`, `restore NAME`, `list`, `drop NAME`, `dump`, `load`, `seen`.

    `dump` prints a snapshot as JSON and `load` reads one, of this phone or another, so that many
    phones can start from the same state. `seen` prints the last commands that the shell ran,
    oldest first, and clears the list.
    """
    verb, *words = call.arguments or [""]
    kept = call.phone.snapshots
    if verb == "save" and len(words) == 1:
        if len(kept) >= _MOST_SNAPSHOTS and words[0] not in kept:
            return call.fail(f"Error: {_MOST_SNAPSHOTS} snapshots are stored; drop one first")
        kept[words[0]] = snapshot.take(call.phone)
        return 0
    if verb in ("restore", "drop") and len(words) == 1:
        if words[0] not in kept:
            return call.fail(f"Error: no snapshot {words[0]!r}; there are: {', '.join(kept)}")
        return _restore(call, kept[words[0]]) if verb == "restore" else _drop(call, words[0])
    if verb == "list" and not words:
        return call.say("\n".join(sorted(kept))) if kept else 0
    if verb == "dump" and not words:
        return call.say(json.dumps(snapshot.take(call.phone), ensure_ascii=False))
    if verb == "load" and not words:
        return await _load(call)
    if verb == "seen" and not words:
        *seen, _ = call.phone.command_history
        call.phone.command_history.clear()
        return call.say(json.dumps(seen, ensure_ascii=False))
    return call.fail(f"Unknown command: {verb}", 255)


async def _load(call: CommandContext) -> int:
    try:
        state = json.loads(await call.read_all())
    except (ValueError, RecursionError) as error:
        return call.fail(f"Error: invalid snapshot: {error}")
    return _restore(call, state)


def _restore(call: CommandContext, state: object) -> int:
    try:
        snapshot.restore(call.phone, state)
    except ValueError as error:
        return call.fail(f"Error: invalid snapshot: {error}")
    return 0


def _drop(call: CommandContext, name: str) -> int:
    del call.phone.snapshots[name]
    return 0

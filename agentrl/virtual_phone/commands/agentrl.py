"""`cmd agentrl`: what a virtual phone can and a real one cannot."""

import json

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.command_context import Call
from agentrl.virtual_phone.system import snapshot

_MOST_SNAPSHOTS = 32


@command("agentrl")
async def agentrl(call: Call) -> int:
    """`save NAME`, `restore NAME`, `list`, `drop NAME`, `dump`, `load`, `seen`.

    `dump` writes a snapshot as JSON, and `load` reads one: of this phone or of another, so that
    many phones start from one state. `seen` writes the last commands that the shell ran, oldest
    first, and forgets them.
    """
    verb, *words = call.arguments or [""]
    kept = call.phone.snapshots
    if verb == "save" and len(words) == 1:
        if len(kept) >= _MOST_SNAPSHOTS and words[0] not in kept:
            return call.fail(f"Error: {_MOST_SNAPSHOTS} snapshots are kept; drop one first")
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
        *seen, _ = call.phone.seen_commands
        call.phone.seen_commands.clear()
        return call.say(json.dumps(seen, ensure_ascii=False))
    return call.fail(f"Unknown command: {verb}", 255)


async def _load(call: Call) -> int:
    try:
        told = json.loads(await call.read_all())
    except (ValueError, RecursionError) as error:
        return call.fail(f"Error: no snapshot: {error}")
    return _restore(call, told)


def _restore(call: Call, told: object) -> int:
    try:
        snapshot.restore(call.phone, told)
    except ValueError as error:
        return call.fail(f"Error: no snapshot: {error}")
    return 0


def _drop(call: Call, name: str) -> int:
    del call.phone.snapshots[name]
    return 0

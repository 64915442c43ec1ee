"""`cmd agentrl`: features that only virtual phones have."""

import json

from agentrl.virtual_phone import snapshot
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext

_MAX_SNAPSHOTS = 32


@command("agentrl")
async def agentrl(ctx: CommandContext) -> int:
    """`save NAME`, `restore NAME`, `list`, `drop NAME`, `dump`, `load`, `seen`.

    `dump` prints a snapshot as JSON and `load` reads one, of this phone or another, so that many
    phones can start from the same state. `seen` prints the last commands that the shell ran,
    oldest first, and clears the list.
    """
    verb, *words = ctx.arguments or [""]
    kept = ctx.phone.snapshots
    if verb == "save" and len(words) == 1:
        if len(kept) >= _MAX_SNAPSHOTS and words[0] not in kept:
            return ctx.fail(f"Error: {_MAX_SNAPSHOTS} snapshots are stored; drop one first")
        kept[words[0]] = snapshot.take(ctx.phone)
        return 0
    if verb in ("restore", "drop") and len(words) == 1:
        if words[0] not in kept:
            return ctx.fail(f"Error: no snapshot {words[0]!r}; there are: {', '.join(kept)}")
        return _restore(ctx, kept[words[0]]) if verb == "restore" else _drop(ctx, words[0])
    if verb == "list" and not words:
        return ctx.print("\n".join(sorted(kept))) if kept else 0
    if verb == "dump" and not words:
        return ctx.print(json.dumps(snapshot.take(ctx.phone), ensure_ascii=False))
    if verb == "load" and not words:
        return await _load(ctx)
    if verb == "seen" and not words:
        *seen, _ = ctx.phone.command_history
        ctx.phone.command_history.clear()
        return ctx.print(json.dumps(seen, ensure_ascii=False))
    return ctx.fail(f"Unknown command: {verb}", 255)


async def _load(ctx: CommandContext) -> int:
    try:
        state = json.loads(await ctx.read_all())
    except (ValueError, RecursionError) as error:
        return ctx.fail(f"Error: invalid snapshot: {error}")
    return _restore(ctx, state)


def _restore(ctx: CommandContext, state: object) -> int:
    try:
        snapshot.restore(ctx.phone, state)
    except ValueError as error:
        return ctx.fail(f"Error: invalid snapshot: {error}")
    return 0


def _drop(ctx: CommandContext, name: str) -> int:
    del ctx.phone.snapshots[name]
    return 0

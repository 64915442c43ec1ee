"""`cmd agentrl`: features that only virtual phones have."""

import json

from agentrl.virtual_phone import snapshot
from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext


@command("agentrl")
async def agentrl(ctx: CommandContext) -> int:
    """`dump`, `load`, `seen`.

    `dump` prints a snapshot as JSON and `load` reads one, of this phone or another, so that many
    phones can start from the same state. `seen` prints the last commands that the shell ran,
    oldest first, and clears the list.
    """
    if ctx.arguments == ["dump"]:
        return ctx.print(json.dumps(snapshot.take(ctx.phone), ensure_ascii=False))
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

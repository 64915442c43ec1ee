"""Commands for the phone's network: curl, ip."""

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.network import PageUnreachable, fetch


@command("curl", "wget")
async def curl(ctx: CommandContext) -> int:
    """`curl [-s] URL`: print a page."""
    _, words = split_options(ctx, "omwH")
    if len(words) != 1:
        return ctx.fail("curl: needs one URL", 2)
    try:
        _, body = await fetch(ctx.phone.network, words[0])
    except PageUnreachable as error:
        return ctx.fail(f"curl: (7) {error}", 7)
    ctx.out(body)
    return 0


@command("ip", "ifconfig")
def ip(ctx: CommandContext) -> int:
    """`ip addr [show dev wlan0]`, `ifconfig wlan0`: the phone's address is this machine's."""
    if ctx.name == "ifconfig":
        return ctx.print(
            "wlan0     Link encap:Ethernet\n          inet addr:127.0.0.1  Mask:255.0.0.0"
        )
    return ctx.print("2: wlan0: <BROADCAST,UP>\n    inet 127.0.0.1/8 scope host wlan0")

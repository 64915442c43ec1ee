"""Commands for the phone's network: nc, curl, ip."""

import asyncio

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.network import PageUnreachable, PortListener, fetch
from agentrl.virtual_phone.system.pipe import Channel, PhoneSocket, socket_pair

_LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


@command("nc", "netcat")
async def nc(ctx: CommandContext) -> int:
    """`nc HOST PORT`, `nc -l -p PORT`: connect standard input and output to a port."""
    options, words = split_options(ctx, "pwWs")
    port = options.get("p") or (words[-1] if words else "")
    if "l" in options:
        return await _listen(ctx, port)
    if len(words) != 2:
        return ctx.fail("nc: needs HOST PORT, or -l -p PORT")
    channel = ctx.phone.network.connect(f"tcp:{port}") if words[0] in _LOOPBACK_HOSTS else None
    if channel is None:
        return ctx.fail("nc: connect: Connection refused")
    await _talk(ctx, channel)
    return 0


async def _listen(ctx: CommandContext, port: str) -> int:
    network = ctx.phone.network
    accepted: asyncio.Future[PhoneSocket] = asyncio.get_running_loop().create_future()

    def accept() -> Channel:
        ours, theirs = socket_pair()
        if accepted.done():
            ours.close()
        else:
            accepted.set_result(ours)
        return theirs

    owner = object()
    try:
        network.listen(f"tcp:{port}", PortListener(owner=owner, accept=accept))
        await _talk(ctx, await accepted)
    finally:
        network.close_all(owner)
    return 0


async def _talk(ctx: CommandContext, channel: Channel) -> None:
    """Copy bytes both ways until the other side ends."""

    async def send() -> None:
        while data := await ctx.io.read():
            channel.write(data)
            await channel.drain()
        channel.write_eof()

    sending = asyncio.create_task(send())
    try:
        while data := await channel.read():
            ctx.out(data)
            await ctx.io.drain()
    finally:
        sending.cancel()
        channel.close()


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

"""Commands for the network: curl, nc, ip, ifconfig."""

import asyncio
import contextlib

from virtual_phone.commands.command_options import number_of, split_options
from virtual_phone.commands.command_table import command
from virtual_phone.shell.command_context import CommandContext, UsageError
from virtual_phone.system.loopback_http_client import (
    LOOPBACK_HOSTS,
    PageUnreachable,
    Request,
    fetch,
)

_LONG_NAMES = {
    "output=": "o", "remote-name": "O", "fail": "f", "location": "L", "head": "I", "include": "i",
    "write-out=": "w", "max-time=": "m", "connect-timeout=": "m", "silent": "s", "show-error": "S",
    "insecure": "k", "progress-bar": "#",
}  # fmt: skip
_MAX_REDIRECTS = 10


@command("curl")
async def curl(ctx: CommandContext) -> int:
    """`curl [-o FILE | -O] [-f] [-i | -I] [-L] [-w FORMAT] [-m SECONDS] URL`.

    Only the phone's own ports can be reached, including reversed ports.
    """
    try:
        options, urls = split_options(ctx, "OsSfLkiI#o:w:m:", _LONG_NAMES)
    except UsageError as error:
        return ctx.fail(f"curl: {error}", 2)
    if len(urls) != 1:
        return ctx.fail("curl: (2) no URL specified", 2)
    try:
        request = Request(
            url=urls[0],
            method="HEAD" if "I" in options else "GET",
            num_redirects=_MAX_REDIRECTS * ("L" in options),
            max_bytes=ctx.phone.files.num_free,
            deadline_s=float(options.get("m", "300")),
        )
        answer = await fetch(ctx.phone.network, request)
    except (PageUnreachable, ValueError) as error:
        return ctx.fail(f"curl: (7) {error}", 7)
    if "f" in options and answer.status >= 400:
        return ctx.fail(f"curl: (22) The requested URL returned error: {answer.status}", 22)
    head = answer.head + b"\r\n\r\n" if options.keys() & {"i", "I"} else b""
    name = urls[0].partition("://")[2].partition("?")[0].partition("/")[2].rpartition("/")[2]
    target = options.get("o", (name or "index.html") if "O" in options else "-")
    if target == "-":
        ctx.out(head + answer.body)
    else:
        ctx.phone.files.write(ctx.path(target), head + answer.body)
    shown = options.get("w", "").replace("%{http_code}", f"{answer.status:03d}")
    shown = shown.replace("%{size_download}", str(len(answer.body)))
    ctx.out(shown.replace("\\n", "\n").encode("utf-8", "surrogateescape"))
    return 0


@command("nc", "netcat")
async def nc(ctx: CommandContext) -> int:
    """`nc [-w S] [-W S] [-q S] HOST PORT`, `nc -U PATH`: connect within the phone.

    Send standard input and print received data until the other side closes or a timeout expires.
    """
    options, words = split_options(ctx, "46nUw:W:q:", is_mixed=False)
    # -w limits the connection time, but connections are instant here.
    seconds = {name: number_of(options.get(name)) for name in "wWq"}
    for name, count in seconds.items():
        if name in options and count is None:
            raise UsageError(f"not integer: {options[name]}")
    if len(words) != (1 if "U" in options else 2):
        raise UsageError('bad argument count (see "nc --help")')
    host, port = words[0], words[-1]
    if "U" in options:
        channel = ctx.phone.network.connect(f"localfilesystem:{host}")
        refusal = "connect: No such file or directory"
    elif host in LOOPBACK_HOSTS:
        channel = ctx.phone.network.connect(f"tcp:{port}")
        refusal = "connect: Connection refused"
    else:
        is_address, channel = host.replace(".", "").isdecimal(), None
        unknown = f"{host}:{port}: No address associated with hostname"
        refusal = "connect: Network is unreachable" if is_address else unknown
    if channel is None:
        return ctx.fail(f"nc: {refusal}")

    async def send() -> None:
        while chunk := await ctx.io.read():
            channel.write(chunk)
            await channel.drain()
        # ADB cannot close just one direction: the other side may still answer.
        await asyncio.wait_for(asyncio.Event().wait(), seconds["q"])

    async def receive() -> None:
        while chunk := await asyncio.wait_for(channel.read(), seconds["W"]):
            ctx.out(chunk)
            await ctx.io.drain()

    tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(TimeoutError):
                # -q or -W expired: a normal end, unlike other errors.
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        channel.close()
    return 0


@command("ip", "ifconfig")
def ip(ctx: CommandContext) -> int:
    """`ip addr [show dev wlan0]`, `ip route`, `ifconfig wlan0`: print this machine's address."""
    if ctx.name == "ifconfig":
        return ctx.print(
            "wlan0     Link encap:Ethernet\n          inet addr:127.0.0.1  Mask:255.0.0.0"
        )
    *before, last = ["", *ctx.arguments]
    if before[-1:] in (["show"], ["dev"]) and last not in ("dev", "up", "lo", "wlan0"):
        return ctx.fail(f'Device "{last[:40]}" does not exist.')
    if {"route", "ro", "r"} & {*ctx.arguments}:
        return ctx.print("127.0.0.0/8 dev wlan0 proto kernel scope link src 127.0.0.1")
    return ctx.print(
        "2: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default "
        "qlen 1000\n    link/ether 02:00:00:00:00:00 brd ff:ff:ff:ff:ff:ff\n"
        "    inet 127.0.0.1/8 scope host wlan0"
    )

"""Commands for the network: curl, wget, nc, ip, ifconfig."""

import asyncio
import contextlib
import getopt

from virtual_phone.commands.command_table import command
from virtual_phone.shell.interpreter import CommandContext
from virtual_phone.shell.redirects import Input
from virtual_phone.system.network import (
    LOOPBACK_HOSTS,
    PageUnreachable,
    PortListener,
    Request,
    fetch,
)
from virtual_phone.system.pipe import Channel, connected_sockets

_SHORT = "o:OsSfLkiI#w:H:X:d:A:m:"
_LONG = [
    "output=", "remote-name", "silent", "show-error", "fail", "location", "insecure", "include",
    "head", "write-out=", "header=", "request=", "data=", "user-agent=", "max-time=",
    "connect-timeout=", "progress-bar",
]  # fmt: skip
_NAMES = {
    "--output": "-o", "--remote-name": "-O", "--fail": "-f", "--location": "-L", "--head": "-I",
    "--include": "-i", "--write-out": "-w", "--header": "-H", "--request": "-X", "--data": "-d",
    "--user-agent": "-A", "--max-time": "-m", "--connect-timeout": "-m",
}  # fmt: skip
_MAX_REDIRECTS = 10


@command("curl")
async def curl(ctx: CommandContext) -> int:
    """`curl [-o FILE | -O] [-f] [-i | -I] [-L] [-X METHOD] [-H HEADER] [-d DATA] [-w FORMAT] URL`.

    Only the phone's own ports can be reached, for example reversed ones.
    """
    try:
        given, urls = getopt.gnu_getopt(ctx.arguments, _SHORT, _LONG)
    except getopt.GetoptError as error:
        return ctx.fail(f"curl: option {error.opt}: is unknown or needs a value", 2)
    if len(urls) != 1:
        return ctx.fail("curl: (2) no URL specified", 2)
    options = {_NAMES.get(option, option): value for option, value in given}
    headers = [value for option, value in given if _NAMES.get(option, option) == "-H"]
    headers += ["User-Agent: " + options["-A"]] if "-A" in options else []
    method = "HEAD" if "-I" in options else "POST" if "-d" in options else "GET"
    try:
        request = Request(
            url=urls[0],
            method=options.get("-X", method),
            headers=tuple(headers),
            body=options.get("-d", "").encode("utf-8", "surrogateescape"),
            num_redirects=_MAX_REDIRECTS * ("-L" in options),
            max_bytes=ctx.phone.files.num_free,
            deadline_s=float(options.get("-m", "300")),
        )
        answer = await fetch(ctx.phone.network, request)
    except (PageUnreachable, ValueError) as error:
        return ctx.fail(f"curl: (7) {error}", 7)
    if "-f" in options and answer.status >= 400:
        return ctx.fail(f"curl: (22) The requested URL returned error: {answer.status}", 22)
    head = answer.head + b"\r\n\r\n" if "-i" in options or "-I" in options else b""
    target = options.get("-o", _file_name(urls[0]) if "-O" in options else "-")
    _save(ctx, target, head + answer.body)
    shown = options.get("-w", "").replace("%{http_code}", f"{answer.status:03d}")
    shown = shown.replace("%{size_download}", str(len(answer.body)))
    ctx.out(shown.replace("\\n", "\n").encode("utf-8", "surrogateescape"))
    return 0


@command("wget")
async def wget(ctx: CommandContext) -> int:
    """`wget [-q] [-O FILE] URL`: download into a file; `-O -` prints it."""
    try:
        given, urls = getopt.gnu_getopt(ctx.arguments, "qO:", ["output-document="])
    except getopt.GetoptError as error:
        return ctx.fail(f"wget: {error.msg}")
    if len(urls) != 1:
        return ctx.fail("wget: Needs 1 argument")
    url = urls[0] if "://" in urls[0] else f"http://{urls[0]}"
    files = ctx.phone.files
    request = Request(url=url, num_redirects=_MAX_REDIRECTS, max_bytes=files.num_free)
    try:
        answer = await fetch(ctx.phone.network, request)
    except PageUnreachable as error:
        return ctx.fail(f"wget: {error}")
    if answer.status >= 400:
        return ctx.fail(f"wget: bad status {answer.status}")
    targets = [value for option, value in given if option != "-q"]
    _save(ctx, targets[-1] if targets else _file_name(url), answer.body)
    return 0


def _file_name(url: str) -> str:
    """The last part of an URL's path."""
    return url.partition("://")[2].partition("?")[0].partition("/")[2].rpartition("/")[2] or (
        "index.html"
    )


def _save(ctx: CommandContext, target: str, content: bytes) -> None:
    if target == "-":
        ctx.out(content)
    else:
        ctx.phone.files.write(ctx.path(target), content)


@command("nc", "netcat")
async def nc(ctx: CommandContext) -> int:
    """`nc [-w S] [-W S] [-q S] HOST PORT`, `nc -U PATH`, `nc -l|-L [-p PORT] [COMMAND]`.

    As for curl, only the phone's own ports can be reached. With -L, one connection at a time is
    served.
    """
    try:
        given, words = getopt.getopt(ctx.arguments, "46ElLnUw:W:p:q:s:")
    except getopt.GetoptError as error:
        wrong = f"Unknown option '{error.opt}'"
        if "requires" in error.msg:
            wrong = f"Missing argument to -{error.opt}"
        return ctx.fail(f'nc: {wrong} (see "nc --help")')
    options = dict(given)
    seconds: dict[str, float | None] = {}
    for name in ("-w", "-W", "-q", "-p"):
        text = options.get(name)
        if text is not None and not text.isdecimal():
            return ctx.fail(f"nc: not integer: {text}")
        seconds[name] = float(text[:9]) if text else None
    listens = "-l" in options or "-L" in options
    if not listens and len(words) != (1 if "-U" in options else 2):
        return ctx.fail('nc: bad argument count (see "nc --help")')
    if listens:
        return await _listen(ctx, options, words, seconds)
    channel, refusal = _connect(ctx, words, is_local="-U" in options)
    if channel is None:
        return ctx.fail(f"nc: {refusal}")
    await _exchange(ctx, channel, seconds)
    return 0


def _connect(
    ctx: CommandContext, words: list[str], *, is_local: bool
) -> tuple[Channel | None, str]:
    """The connection to a socket of the phone, or None and why there is none."""
    network = ctx.phone.network
    if is_local:
        return network.connect(f"localfilesystem:{words[0]}"), "connect: No such file or directory"
    host, port = words
    if host in LOOPBACK_HOSTS:
        return network.connect(f"tcp:{port}"), "connect: Connection refused"
    if host.replace(".", "").isdecimal():
        return None, "connect: Network is unreachable"
    return None, f"{host}:{port}: No address associated with hostname"


async def _listen(
    ctx: CommandContext, options: dict[str, str], words: list[str], seconds: dict[str, float | None]
) -> int:
    """Serve connections: by a command, or from standard input to standard output."""
    accepted: asyncio.Queue[Channel] = asyncio.Queue()

    def accept() -> Channel:
        theirs, ours = connected_sockets()
        accepted.put_nowait(ours)
        return theirs

    network, port = ctx.phone.network, options.get("-p", "0")
    try:
        address = network.listen(f"tcp:{port}", PortListener(owner=ctx, accept=accept))
    except OSError as error:
        return ctx.fail(f"nc: bind: {error.strerror}")
    if port == "0":
        ctx.print(address.removeprefix("tcp:"))
        await ctx.io.drain()
    try:
        channel = await asyncio.wait_for(accepted.get(), seconds["-w"])
        await _serve(ctx, channel, words, options, seconds)
        while "-L" in options:
            await _serve(ctx, await accepted.get(), words, options, seconds)
    except TimeoutError:
        return ctx.fail("nc: Timeout")
    finally:
        network.close(address)
        while not accepted.empty():
            accepted.get_nowait().close()
    return 0


async def _serve(
    ctx: CommandContext,
    channel: Channel,
    words: list[str],
    options: dict[str, str],
    seconds: dict[str, float | None],
) -> None:
    if not words:
        await _exchange(ctx, channel, seconds)
        return
    io = ctx.io._replace(out=channel.write, read=Input(channel.read), drain=channel.drain)
    try:
        await ctx.shell.execute(words, io._replace(err=channel.write) if "-E" in options else io)
    finally:
        channel.close()


async def _exchange(
    ctx: CommandContext, channel: Channel, seconds: dict[str, float | None]
) -> None:
    """Send standard input and print what comes, until the other side ends or a time is up."""

    async def send() -> None:
        while chunk := await ctx.io.read():
            channel.write(chunk)
            await channel.drain()
        channel.write_eof()
        await asyncio.wait_for(asyncio.Event().wait(), seconds["-q"])

    async def receive() -> None:
        while chunk := await asyncio.wait_for(channel.read(), seconds["-W"]):
            ctx.out(chunk)
            await ctx.io.drain()

    tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(TimeoutError):
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        channel.close()


@command("ip", "ifconfig")
def ip(ctx: CommandContext) -> int:
    """`ip addr [show dev wlan0]`, `ip route`, `ifconfig wlan0`: the address is this machine's."""
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

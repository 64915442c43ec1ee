"""Commands for the network: curl, wget, ip, ifconfig."""

import getopt

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.shell.interpreter import CommandContext
from agentrl.virtual_phone.system.network import PageUnreachable, Request, fetch

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


@command("ip", "ifconfig")
def ip(ctx: CommandContext) -> int:
    """`ip addr [show dev wlan0]`, `ifconfig wlan0`: the phone's address is this machine's."""
    if ctx.name == "ifconfig":
        return ctx.print(
            "wlan0     Link encap:Ethernet\n          inet addr:127.0.0.1  Mask:255.0.0.0"
        )
    return ctx.print("2: wlan0: <BROADCAST,UP>\n    inet 127.0.0.1/8 scope host wlan0")

"""Commands about files: cat, ls, rm, mkdir, md5sum, touch."""

import hashlib
from collections.abc import Callable

from agentrl.phone.commands.table import command
from agentrl.phone.files import normal
from agentrl.phone.shell import Call


def _each(call: Call, act: Callable[[str], None]) -> int:
    """Do something with every path among the arguments, and complain of each that fails."""
    code = 0
    for path in call.arguments:
        if path.startswith("-"):
            continue
        try:
            act(normal(path))
        except OSError as error:
            code = call.fail(f"{call.name}: {path}: {error.strerror}")
    return code


@command("cat")
async def cat(call: Call) -> int:
    """`cat [files]`."""
    if not call.arguments:
        call.out(await call.read_all())
        return 0
    return _each(call, lambda path: call.out(call.phone.files.read(path)))


@command("ls")
def ls(call: Call) -> int:
    """`ls [paths]`, one name a line."""
    files = call.phone.files

    def show(path: str) -> None:
        node = files.find(path)
        for name in [path] if node is not None and not node.is_folder else files.names(path):
            call.say(name)

    call.arguments = [a for a in call.arguments if not a.startswith("-")] or ["/"]
    return _each(call, show)


@command("rm")
def rm(call: Call) -> int:
    """`rm [-r] [-f] paths`."""
    options = "".join(a[1:] for a in call.arguments if a.startswith("-"))
    files = call.phone.files

    def remove(path: str) -> None:
        if files.find(path) is not None or "f" not in options:
            files.remove(path, recursive="r" in options)

    return _each(call, remove)


@command("mkdir")
def mkdir(call: Call) -> int:
    """`mkdir [-p] paths`."""
    files = call.phone.files
    return _each(call, files.make_folders if "-p" in call.arguments else files.make_folder)


@command("touch")
def touch(call: Call) -> int:
    """`touch paths`: an empty file where there is none."""
    files = call.phone.files

    def make(path: str) -> None:
        if files.find(path) is None:
            files.write(path, b"")

    return _each(call, make)


@command("md5sum")
def md5sum(call: Call) -> int:
    """`md5sum files`."""

    def show(path: str) -> None:
        digest = hashlib.md5(call.phone.files.read(path), usedforsecurity=False).hexdigest()
        call.say(f"{digest}  {path}")

    return _each(call, show)

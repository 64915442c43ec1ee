"""Commands for files: cat, ls, rm, mkdir, cp, mv, touch, chmod."""

import stat as modes
import time
from collections.abc import Callable, Sequence

from agentrl.virtual_phone.commands.command_table import command
from agentrl.virtual_phone.commands.text_commands import split_options
from agentrl.virtual_phone.shell.command_context import CommandContext
from agentrl.virtual_phone.system.file_system import FileNode

_CHUNK = 1 << 20
_BLOCK = 4096


def each(call: CommandContext, paths: Sequence[str], act: Callable[[str], None]) -> int:
    """Apply a function to every path; print an error for each one that fails."""
    code = 0
    for path in paths:
        try:
            act(call.path(path))
        except OSError as error:
            code = call.fail(f"{call.name}: {path}: {error.strerror}")
    return code


@command("cat")
async def cat(call: CommandContext) -> int:
    """`cat [files]`."""
    paths = [path for path in split_options(call, "")[1] if path != "-"]
    if not paths:
        while chunk := await call.io.read():
            call.out(chunk)
            await call.io.drained()
    code = 0
    for path in paths:
        try:
            content = memoryview(call.phone.files.read(call.path(path)))
        except OSError as error:
            code = call.fail(f"cat: {path}: {error.strerror}")
            continue
        for start in range(0, len(content), _CHUNK):
            call.out(content[start : start + _CHUNK])
            await call.io.drained()
    return code


@command("ls")
def ls(call: CommandContext) -> int:
    """`ls [-l] [-a] [-d] [-1] [paths]`, one name per line."""
    options, paths = split_options(call, "")
    files = call.phone.files

    def show(path: str) -> None:
        node = files.find(path)
        if node is not None and ("d" in options or not node.is_folder):
            call.say(_line(path, node) if "l" in options else path)
            return
        names = files.names(path)
        if "l" in options:
            call.say(f"total {len(names) * _BLOCK // 1024}")
        for name in names:
            inside = files.find(f"{path}/{name}")
            if inside is not None and ("a" in options or name[0] != "."):
                call.say(_line(name, inside) if "l" in options else name)

    return each(call, paths or [call.environment["PWD"]], show)


@command("rm")
def rm(call: CommandContext) -> int:
    """`rm [-r] [-f] paths`."""
    options, paths = split_options(call, "")
    files = call.phone.files

    def remove(path: str) -> None:
        if files.find(path) is not None or "f" not in options:
            files.remove(path, recursive="r" in options or "R" in options)

    return each(call, paths, remove)


@command("rmdir")
def rmdir(call: CommandContext) -> int:
    """`rmdir folders`: remove empty folders."""
    files = call.phone.files

    def remove(path: str) -> None:
        if files.names(path):
            raise OSError(39, "Directory not empty")
        files.remove(path, recursive=True)

    return each(call, split_options(call, "")[1], remove)


@command("mkdir")
def mkdir(call: CommandContext) -> int:
    """`mkdir [-p] paths`."""
    options, paths = split_options(call, "m")
    files = call.phone.files
    return each(call, paths, files.make_folders if "p" in options else files.make_folder)


@command("cp", "mv")
def cp(call: CommandContext) -> int:
    """`cp file target`, `mv file target`; the target is a file or a folder."""
    _, paths = split_options(call, "")
    if len(paths) < 2:
        return call.fail(f"{call.name}: Needs 2 arguments")
    files, goal = call.phone.files, call.path(paths[-1])
    node = files.find(goal)

    def copy(path: str) -> None:
        is_inside = node is not None and node.is_folder
        target = f"{goal}/{path.rpartition('/')[2]}" if is_inside else goal
        content = files.read(path)
        if target != path:
            files.write(target, content)
            if call.name == "mv":
                files.remove(path)

    return each(call, paths[:-1], copy)


@command("touch")
def touch(call: CommandContext) -> int:
    """`touch paths`: create empty files."""
    files = call.phone.files

    def make(path: str) -> None:
        if files.find(path) is None:
            files.write(path, b"")

    return each(call, split_options(call, "td")[1], make)


@command("chmod")
def chmod(call: CommandContext) -> int:
    """`chmod MODE paths`: MODE is octal; of symbolic modes, only `+x` has an effect."""
    words = [word for word in call.arguments if word != "-R"]
    if len(words) < 2:
        return call.fail("chmod: Needs 2 arguments")
    mode, files = words[0], call.phone.files

    def change(path: str) -> None:
        node = files.find(path)
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if all(digit in "01234567" for digit in mode) and len(mode) <= 4:
            node.mode = modes.S_IFMT(node.mode) | int(mode, 8)
        elif "+" in mode and "x" in mode:
            node.mode |= 0o111

    return each(call, words[1:], change)


def size_of(node: FileNode) -> int:
    """Size of a file or folder in bytes."""
    return _BLOCK if node.content is None else len(node.content)


def _line(name: str, node: FileNode) -> str:
    """A line of `ls -l`."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(node.mtime))
    return f"{modes.filemode(node.mode)} 1 shell shell {size_of(node):>8} {when} {name}"

"""The files of a virtual phone, in memory."""

import stat
from dataclasses import dataclass

EPOCH_S = 1_700_000_000
"""Modification time of every file: a phone's clock never is the wall's."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A file, or a folder if `content` is None."""

    content: bytes | None
    mode: int
    mtime: int = EPOCH_S

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.content is None


def normal(path: str, folder: str = "/") -> str:
    """An absolute path without `.`, `..` and double slashes."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


class Files:
    """A small file system; every path is absolute.

    Errors are the `OSError`s that a real one raises, with the path as file name.
    """

    def __init__(self) -> None:
        """The folders that every phone has."""
        self._nodes = {"/": Node(content=None, mode=stat.S_IFDIR | 0o755)}
        for path in ("/data/local/tmp", "/sdcard/Download", "/system/bin", "/storage/emulated/0"):
            self.make_folders(path)

    def find(self, path: str) -> Node | None:
        """What stands at a path, or None."""
        return self._nodes.get(normal(path))

    def read(self, path: str) -> bytes:
        """A file's content."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if node.content is None:
            raise IsADirectoryError(21, "Is a directory", path)
        return node.content

    def write(self, path: str, content: bytes, *, mode: int = 0o644, mtime: int = EPOCH_S) -> None:
        """Write a whole file; its folder must exist."""
        path = normal(path)
        parent = self.find(path.rpartition("/")[0] or "/")
        if parent is None or not parent.is_folder:
            raise FileNotFoundError(2, "No such file or directory", path)
        known = self._nodes.get(path)
        if known is not None and known.is_folder:
            raise IsADirectoryError(21, "Is a directory", path)
        permissions = stat.S_IFREG | stat.S_IMODE(mode)
        self._nodes[path] = Node(content=content, mode=permissions, mtime=mtime)

    def make_folder(self, path: str) -> None:
        """Make one folder in a folder that exists."""
        path = normal(path)
        if path in self._nodes:
            raise FileExistsError(17, "File exists", path)
        if self.find(path.rpartition("/")[0] or "/") is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        self._nodes[path] = Node(content=None, mode=stat.S_IFDIR | 0o771)

    def make_folders(self, path: str) -> None:
        """Make a folder and those above it, where they are missing."""
        at = ""
        for part in normal(path).split("/")[1:]:
            at = f"{at}/{part}"
            if at not in self._nodes:
                self.make_folder(at)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a folder and what is in it."""
        path = normal(path)
        node = self._nodes.get(path)
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if node.is_folder and not recursive:
            raise IsADirectoryError(21, "Is a directory", path)
        for known in [p for p in self._nodes if p == path or p.startswith(f"{path}/")]:
            del self._nodes[known]

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        path = normal(path)
        if not self._nodes.get(path, Node(content=b"", mode=0)).is_folder:
            raise FileNotFoundError(2, "No such file or directory", path)
        prefix = path.rstrip("/") + "/"
        inside = (p[len(prefix) :] for p in self._nodes if p.startswith(prefix) and p != "/")
        return sorted(name for name in inside if "/" not in name)

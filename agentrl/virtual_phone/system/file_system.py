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


_SDCARD = "/sdcard"
_SAME_AS_SDCARD = ("/storage/emulated/0", "/storage/self/primary", "/mnt/sdcard")
_CPU_TIMES = "4000 100 3000 90000 200 0 50 0 0 0"
_STATIC = {
    "/proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n",
    "/proc/meminfo": "MemTotal:        4000000 kB\nMemFree:         2000000 kB\n",
    "/proc/stat": f"cpu  {_CPU_TIMES}\ncpu0 {_CPU_TIMES}\ncpu1 {_CPU_TIMES}\n",
    "/proc/version": "Linux version 6.1.0-virtual\n",
    "/sys/devices/system/cpu/cpu0/online": "1\n",
    "/sys/devices/system/cpu/cpu1/online": "1\n",
}
"""What programs read of a kernel."""
_CAPACITY = 512 << 20
_MOST_NODES = 50_000


def normal(path: str, folder: str = "/") -> str:
    """An absolute path without `.`, `..` and double slashes, and with one name for each place."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    whole = "/" + "/".join(parts)
    if whole.startswith(_SAME_AS_SDCARD):
        for same in _SAME_AS_SDCARD:
            if whole == same or whole.startswith(f"{same}/"):
                return _SDCARD + whole[len(same) :]
    return whole


class Files:
    """A small file system; every path is absolute.

    Errors are the `OSError`s that a real one raises, with the path as file name.
    """

    def __init__(self) -> None:
        """The folders that every phone has."""
        self._nodes: dict[str, Node] = {}
        self._num_used = 0
        self.clear()
        self.capacity = _CAPACITY
        """Bytes that all files may have together."""
        for path in ("/data/local/tmp", "/sdcard/Download", "/sdcard/DCIM", "/system/bin"):
            self.make_folders(path)
        for path, text in _STATIC.items():
            self.make_folders(path.rpartition("/")[0])
            self.write(path, text.encode())

    def clear(self) -> None:
        """Remove everything, the folders that every phone has among it."""
        self._num_used -= sum(len(node.content or b"") for node in self._nodes.values())
        self._nodes = {"/": Node(content=None, mode=stat.S_IFDIR | 0o755)}

    @property
    def num_free(self) -> int:
        """Bytes for which there is room."""
        return max(0, self.capacity - self._num_used)

    @property
    def is_scarce(self) -> bool:
        """Whether somebody has taken room away."""
        return self.capacity != _CAPACITY

    def leave_free(self, num_bytes: int | None) -> None:
        """Leave room for so many bytes more; None for as many as the phone came with."""
        self.capacity = _CAPACITY if num_bytes is None else self._num_used + num_bytes

    def reserve(self, num_bytes: int) -> None:
        """Take room for something that is on its way to the phone.

        Raises:
            OSError: there is not enough.
        """
        if num_bytes > self.num_free:
            raise OSError(28, "No space left on device")
        self._num_used += num_bytes

    def release(self, num_bytes: int) -> None:
        """Give back what was reserved."""
        self._num_used -= num_bytes

    def all(self) -> list[tuple[str, Node]]:
        """Every file and folder by its path, folders before what is in them."""
        return sorted(self._nodes.items())

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
        if parent is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if not parent.is_folder:
            raise NotADirectoryError(20, "Not a directory", path)
        known = self._nodes.get(path)
        if known is not None and known.is_folder:
            raise IsADirectoryError(21, "Is a directory", path)
        grows = len(content) - (len(known.content or b"") if known is not None else 0)
        if (grows > self.num_free) or (known is None and len(self._nodes) >= _MOST_NODES):
            raise OSError(28, "No space left on device", path)
        self._num_used += grows
        permissions = stat.S_IFREG | stat.S_IMODE(mode)
        self._nodes[path] = Node(content=content, mode=permissions, mtime=mtime)

    def make_folder(self, path: str) -> None:
        """Make one folder in a folder that exists."""
        path = normal(path)
        if path in self._nodes:
            raise FileExistsError(17, "File exists", path)
        parent = self.find(path.rpartition("/")[0] or "/")
        if parent is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if not parent.is_folder:
            raise NotADirectoryError(20, "Not a directory", path)
        if len(self._nodes) >= _MOST_NODES:
            raise OSError(28, "No space left on device", path)
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
        if path == "/":
            raise PermissionError(13, "Permission denied", path)
        for known in [p for p in self._nodes if p == path or p.startswith(f"{path}/")]:
            self._num_used -= len(self._nodes.pop(known).content or b"")

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        path = normal(path)
        if not self._nodes.get(path, Node(content=b"", mode=0)).is_folder:
            raise FileNotFoundError(2, "No such file or directory", path)
        prefix = path.rstrip("/") + "/"
        inside = (p[len(prefix) :] for p in self._nodes if p.startswith(prefix) and p != "/")
        return sorted(name for name in inside if "/" not in name)

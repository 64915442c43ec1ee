"""The in-memory file system of a virtual phone."""

import posixpath
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

EPOCH_S = 1_700_000_000
"""Default modification time of files, independent of the wall clock."""


@dataclass(slots=True, kw_only=True)
class FileNode:
    """A file, a symbolic link (`content` is the target) or a folder (`content` is None)."""

    content: bytes | None
    mode: int
    mtime: int = EPOCH_S

    @property
    def is_folder(self) -> bool:
        """Whether the node is a folder."""
        return self.content is None

    @property
    def is_link(self) -> bool:
        """Whether the node is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def target(self) -> str:
        """Target path of a link."""
        return (self.content or b"").decode("utf-8", "surrogateescape")


KEYS_FILE = "/data/misc/adb/adb_keys"
"""Public keys of the computers that the phone trusts."""
_SDCARD = "/sdcard"
_SDCARD_ALIASES = ("/storage/emulated/0", "/storage/self/primary", "/mnt/sdcard")
_READ_ONLY = ("/system/", "/system_ext/", "/vendor/", "/product/", "/odm/", "/apex/")
_OF_KERNEL = ("/dev/", "/proc/", "/sys/")
_FOLDERS = (
    "/data/local/tmp", "/sdcard/Download", "/sdcard/DCIM", "/system/bin", "/system/app",
    "/system/etc", "/vendor/bin", "/product/app",
)  # fmt: skip
_CAPACITY = 1 << 30
_MADE_AT_ONCE = 1 << 20
"""Default number of bytes returned when reading an endless file such as /dev/zero."""
_MAX_NODES = 50_000
_MAX_LINKS = 40
"""Maximum number of links that a path may lead through."""
_MAX_TARGET_LENGTH = 4095


def normalize_path(path: str, folder: str = "/") -> str:
    """Return the canonical absolute path: no `.`, `..`, double slashes or /sdcard aliases."""
    whole = posixpath.normpath(path if path.startswith("/") else f"{folder}/{path}")
    whole = whole[1:] if whole.startswith("//") else whole  # POSIX allows `//` to be special
    if whole.startswith(_SDCARD_ALIASES):
        for same in _SDCARD_ALIASES:
            if whole == same or whole.startswith(f"{same}/"):
                return _SDCARD + whole[len(same) :]
    return whole


def is_writable(path: str) -> bool:
    """Return whether a path is writable: the root folder and the system are read-only."""
    return path.rfind("/") > 0 and not path.startswith((*_READ_ONLY, *_OF_KERNEL))


def _check_writable(path: str) -> None:
    if path.startswith(_OF_KERNEL):
        raise PermissionError(13, "Permission denied", path)
    if not is_writable(path):
        raise OSError(30, "Read-only file system", path)


class FileSystem:
    """A small in-memory file system; all paths are absolute.

    Methods raise the same `OSError`s as a real file system, with the path as file name.
    """

    def __init__(self, made: Mapping[str, Callable[[int], bytes]] | None = None) -> None:
        # Kernel files by path: functions that make the content. Endless files return `size` bytes.
        self._made = made or {}
        self._nodes: dict[str, FileNode] = {}
        self._num_used = 0
        self.capacity = _CAPACITY
        """Maximum total size of all files, in bytes."""
        self.clear()

    def clear(self) -> None:
        """Restore the contents of a new phone."""
        self._num_used -= sum(len(node.content or b"") for node in self._nodes.values())
        self._nodes = {"/": FileNode(content=None, mode=stat.S_IFDIR | 0o755)}
        for folder in {*_FOLDERS, *(path.rpartition("/")[0] for path in self._made)}:
            at = ""
            for part in folder.split("/")[1:]:
                at = f"{at}/{part}"
                self._nodes[at] = FileNode(content=None, mode=stat.S_IFDIR | 0o771)
        for path in self._made:
            mode = stat.S_IFCHR | 0o666 if path.startswith("/dev/") else stat.S_IFREG | 0o444
            self._nodes[path] = FileNode(content=b"", mode=mode)

    @property
    def num_free(self) -> int:
        """Free space in bytes."""
        return max(0, self.capacity - self._num_used)

    def limit_free(self, num_bytes: int | None) -> None:
        """Limit the free space; None restores the original capacity."""
        self.capacity = _CAPACITY if num_bytes is None else self._num_used + num_bytes

    def reserve(self, num_bytes: int) -> None:
        """Reserve space for an upload in progress."""
        if num_bytes > self.num_free:
            raise OSError(28, "No space left on device")
        self._num_used += num_bytes

    def release(self, num_bytes: int) -> None:
        """Release reserved space."""
        self._num_used -= num_bytes

    def all(self) -> list[tuple[str, FileNode]]:
        """Return all writable paths with their nodes, folders before their contents."""
        return [(path, node) for path, node in sorted(self._nodes.items()) if is_writable(path)]

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """Resolve all symbolic links in a path."""
        at = normalize_path(path)
        for _ in range(_MAX_LINKS):
            link = self._first_link(at, follow=follow)
            if link is None:
                return at
            at = normalize_path(self._nodes[link].target + at[len(link) :], posixpath.dirname(link))
        raise OSError(40, "Too many symbolic links encountered", path)

    def _first_link(self, path: str, *, follow: bool) -> str | None:
        """Return the shortest prefix of `path` that is a link, if any."""
        end = path.find("/", 1)
        while end > 0:
            node = self._nodes.get(path[:end])
            if node is None:
                return None
            if node.is_link:
                return path[:end]
            end = path.find("/", end + 1)
        last = self._nodes.get(path) if follow else None
        return path if last is not None and last.is_link else None

    def stat(self, path: str, *, follow: bool = True) -> FileNode:
        """Return the node at a path; without `follow`, return a link itself."""
        node = self._nodes.get(self.resolve(path, follow=follow))
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return node

    def find(self, path: str, *, follow: bool = True) -> FileNode | None:
        """Return the node at a path, or None; without `follow`, return a link itself."""
        try:
            return self.stat(path, follow=follow)
        except OSError:
            return None

    def read(self, path: str, size: int = _MADE_AT_ONCE) -> bytes:
        """Read a whole file, or `size` bytes of an endless file."""
        node = self.stat(path)
        if node.content is None:
            raise IsADirectoryError(21, "Is a directory", path)
        make = None if node.content else self._made.get(self.resolve(path))
        return node.content if make is None else make(size)

    def write(self, path: str, content: bytes, *, mode: int = 0o644, mtime: int = EPOCH_S) -> None:
        """Write a whole file; its folder must exist."""
        path = self.resolve(path)
        if path.startswith("/dev/") and path in self._made:
            return
        permissions = stat.S_IFREG | stat.S_IMODE(mode)
        self._put(path, FileNode(content=content, mode=permissions, mtime=mtime))

    def make_link(self, path: str, target: str) -> None:
        """Create a symbolic link; the shared storage does not support links."""
        path = self.resolve(path, follow=False)
        content = target.encode("utf-8", "surrogateescape")
        if path in self._nodes:
            raise FileExistsError(17, "File exists", path)
        if not content:
            raise FileNotFoundError(2, "No such file or directory", path)
        if len(content) > _MAX_TARGET_LENGTH:
            raise OSError(36, "File name too long", path)
        if path.startswith(f"{_SDCARD}/"):
            raise PermissionError(13, "Permission denied", path)
        self._put(path, FileNode(content=content, mode=stat.S_IFLNK | 0o777))

    def make_folder(self, path: str) -> None:
        """Create a folder; its parent must exist."""
        path = self.resolve(path, follow=False)
        if path in self._nodes:
            raise FileExistsError(17, "File exists", path)
        _check_writable(path)
        self._put(path, FileNode(content=None, mode=stat.S_IFDIR | 0o771))

    def _put(self, path: str, node: FileNode) -> None:
        """Put a node at a resolved path, replacing an existing file."""
        parent = self._nodes.get(path.rpartition("/")[0] or "/")
        if parent is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if not parent.is_folder:
            raise NotADirectoryError(20, "Not a directory", path)
        known = self._nodes.get(path)
        if known is not None and known.is_folder:
            raise IsADirectoryError(21, "Is a directory", path)
        _check_writable(path)
        grows = len(node.content or b"") - (len(known.content or b"") if known is not None else 0)
        if (grows > self.num_free) or (known is None and len(self._nodes) >= _MAX_NODES):
            raise OSError(28, "No space left on device", path)
        self._num_used += grows
        self._nodes[path] = node

    def make_folders(self, path: str) -> None:
        """Create a folder and its missing parents."""
        at = ""
        for part in normalize_path(path).split("/")[1:]:
            at = f"{at}/{part}"
            if self.find(at) is None:
                self.make_folder(at)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a folder and its contents."""
        path = self.resolve(path, follow=False)
        if self.stat(path, follow=False).is_folder and not recursive:
            raise IsADirectoryError(21, "Is a directory", path)
        _check_writable(path)
        # Folders keep no list of their entries: there are few paths, and most commands name one.
        for known in [p for p in self._nodes if p == path or p.startswith(f"{path}/")]:
            self._num_used -= len(self._nodes.pop(known).content or b"")

    def names(self, path: str) -> list[str]:
        """Return the sorted names of the entries of a folder."""
        path = self.resolve(path)
        if not self._nodes.get(path, FileNode(content=b"", mode=0)).is_folder:
            raise FileNotFoundError(2, "No such file or directory", path)
        prefix = path.rstrip("/") + "/"
        inside = (p[len(prefix) :] for p in self._nodes if p.startswith(prefix) and p != "/")
        return sorted(name for name in inside if "/" not in name)

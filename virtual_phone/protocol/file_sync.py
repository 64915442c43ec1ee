"""The sync service: the protocol of `adb push`, `adb pull` and `adb ls`.

https://android.googlesource.com/platform/packages/modules/adb/+/HEAD/SYNC.TXT
"""

import stat
import struct
from collections.abc import Callable

from virtual_phone.protocol.adb_stream import Stream
from virtual_phone.system.file_system import FileNode, FileSystem

_CHUNK = 64 * 1024
_MAX_PATH_LENGTH = 1024
_REQUEST = struct.Struct("<4sI")
_STAT = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY = struct.Struct("<4s4I")
_SHELL_USER = 2000


async def serve(files: FileSystem, stream: Stream) -> None:
    """Serve one client until it quits."""
    await _Session(files, stream).serve()


class _Session:
    """Handles one client's requests in order."""

    def __init__(self, files: FileSystem, stream: Stream) -> None:
        self._files = files
        self._stream = stream
        self._buffer = bytearray()

    async def serve(self) -> None:
        while (request := await self._exactly(_REQUEST.size)) is not None:
            id, length = _REQUEST.unpack(request)
            if id == b"QUIT":
                return
            if length > _MAX_PATH_LENGTH:
                self._fail("path too long")
                return
            encoded_path = await self._exactly(length)
            if encoded_path is None:
                return
            path = encoded_path.decode("utf-8", "surrogateescape")
            if id in _ANSWERS:
                _ANSWERS[id](self, path)
            elif id == b"RECV":
                await self._send(path)
            elif id != b"SEND":
                self._fail(f"unknown command {id.hex()}")
                return
            elif not await self._receive(path):
                return
            await self._stream.drain()

    async def _send(self, path: str) -> None:
        """Send a file that the client pulls."""
        try:
            content = memoryview(self._files.read(path))
        except OSError as error:
            self._fail(f"open failed: {error.strerror}")
            return
        for start in range(0, len(content), _CHUNK):
            chunk = content[start : start + _CHUNK]
            self._stream.write(_REQUEST.pack(b"DATA", len(chunk)))
            self._stream.write(chunk)
            await self._stream.drain()
        self._stream.write(_REQUEST.pack(b"DONE", 0))

    async def _receive(self, path_and_mode: str) -> bool:
        """Receive a file that the client pushes; return whether the connection is still usable.

        The file is read to its end even if it cannot be stored, and uses space on the phone from
        its first byte.
        """
        path, _, mode = path_and_mode.rpartition(",")
        content = bytearray()
        error = None if mode.isdecimal() else OSError(22, "Invalid argument")
        try:
            while (header := await self._exactly(_REQUEST.size)) is not None:
                id, length = _REQUEST.unpack(header)
                if id == b"DONE":
                    break
                if id != b"DATA" or length > _CHUNK:
                    self._fail(f"invalid data message {id.hex()}")
                    return False
                chunk = await self._exactly(length)
                if chunk is None:
                    return False
                try:
                    if error is None:
                        self._files.reserve(length)
                        content += chunk
                except OSError as full:
                    error = full
            else:
                return False
        finally:
            self._files.release(len(content))
        try:
            if error is not None:
                raise error
            self._store(path, int(mode), bytes(content), mtime=length)
            self._stream.write(_REQUEST.pack(b"OKAY", 0))
        except OSError as failure:
            self._fail(f"couldn't create file: {failure.strerror}")
        return True

    def _store(self, path: str, mode: int, content: bytes, mtime: int) -> None:
        """Store a file, or a symbolic link whose content is its target."""
        self._files.make_folders(path.rpartition("/")[0] or "/")
        if not stat.S_ISLNK(mode):
            self._files.write(path, content, mode=mode, mtime=mtime)
            return
        known = self._files.find(path, follow=False)
        if known is not None and not known.is_folder:
            self._files.remove(path)
        self._files.make_link(path, content.rstrip(b"\0").decode("utf-8", "surrogateescape"))

    def _fail(self, message: str) -> None:
        text = message.encode("utf-8", "surrogateescape")
        self._stream.write(_REQUEST.pack(b"FAIL", len(text)) + text)

    def _stat(self, path: str) -> None:
        node = self._files.find(path, follow=False)
        fields = (0, 0, 0) if node is None else (node.mode, _size(node), node.mtime)
        self._stream.write(_STAT.pack(b"STAT", *fields))

    def _list(self, path: str) -> None:
        for name, node in self._entries(path):
            encoded = name.encode("utf-8", "surrogateescape")
            head = _ENTRY.pack(b"DENT", node.mode, _size(node), node.mtime, len(encoded))
            self._stream.write(head + encoded)
        self._stream.write(b"DONE" + bytes(_ENTRY.size - 4))

    def _list_v2(self, path: str) -> None:
        for name, node in self._entries(path):
            encoded = name.encode("utf-8", "surrogateescape")
            length = struct.pack("<I", len(encoded))
            self._stream.write(_stat_v2(b"DNT2", node) + length + encoded)
        self._stream.write(b"DONE" + bytes(_STAT_V2.size))

    def _entries(self, path: str) -> list[tuple[str, FileNode]]:
        """Return the entries of a folder, including `.` and `..`."""
        try:
            path = self._files.resolve(path)
            names = self._files.names(path)
        except OSError:
            return []
        nodes = (
            (name, self._files.find(f"{path}/{name}", follow=False)) for name in (".", "..", *names)
        )
        return [(name, node) for name, node in nodes if node is not None]

    async def _exactly(self, count: int) -> bytes | None:
        """Read exactly `count` bytes; None if the client is gone."""
        while len(self._buffer) < count:
            chunk = await self._stream.read()
            if not chunk:
                return None
            self._buffer += chunk
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return data


def _size(node: FileNode) -> int:
    return 4096 if node.content is None else len(node.content)


def _stat_v2(id: bytes, node: FileNode) -> bytes:
    owner = (_SHELL_USER, _SHELL_USER)
    times = (node.mtime,) * 3
    return _STAT_V2.pack(id, 0, 1, 1, node.mode, 1, *owner, _size(node), *times)


def _stat_answer(id: bytes, *, follow: bool) -> Callable[[_Session, str], None]:
    def answer(session: _Session, path: str) -> None:
        try:
            row = _stat_v2(id, session._files.stat(path, follow=follow))
        except OSError as error:
            row = _STAT_V2.pack(id, error.errno, *(0,) * 10)
        session._stream.write(row)

    return answer


_ANSWERS: dict[bytes, Callable[[_Session, str], None]] = {
    b"STAT": _Session._stat,
    b"STA2": _stat_answer(b"STA2", follow=True),
    b"LST2": _stat_answer(b"LST2", follow=False),
    b"LIST": _Session._list,
    b"LIS2": _Session._list_v2,
}

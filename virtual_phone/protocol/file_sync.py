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


class Upload:
    """An unfinished file; it takes up space on the phone from its first byte on."""

    def __init__(self, files: FileSystem, path: str, mode: int | None) -> None:
        """Start an empty file.

        Args:
            files: the phone's file system.
            path: target of the upload.
            mode: type and permissions; None if the client sent an invalid mode. The content of a
                symbolic link is its target.
        """
        self._files = files
        self._path = path
        self._mode = mode
        self._content = bytearray()
        self._error = None if mode is not None else OSError(22, "Invalid argument")

    def take(self, chunk: bytes) -> None:
        """Add a chunk, unless the file cannot be stored anyway."""
        try:
            if self._error is None:
                self._files.reserve(len(chunk))
                self._content += chunk
        except OSError as error:
            self._error = error

    def store(self, mtime: int) -> OSError | None:
        """Store the file; returns the error if that fails."""
        content = bytes(self._content)
        self.release()
        try:
            if self._error is None:
                self._files.make_folders(self._path.rpartition("/")[0] or "/")
                self._store(content, mtime)
        except OSError as error:
            self._error = error
        return self._error

    def _store(self, content: bytes, mtime: int) -> None:
        mode = self._mode or 0
        if not stat.S_ISLNK(mode):
            self._files.write(self._path, content, mode=mode, mtime=mtime)
            return
        known = self._files.find(self._path, follow=False)
        if known is not None and not known.is_folder:
            self._files.remove(self._path)
        self._files.make_link(self._path, content.rstrip(b"\0").decode("utf-8", "surrogateescape"))

    def release(self) -> None:
        """Release the reserved space."""
        self._files.release(len(self._content))
        self._content.clear()


async def serve(files: FileSystem, stream: Stream) -> None:
    """Serve one client until it quits."""
    await _Session(files, stream).serve()


class _Session:
    """One client's requests, in order."""

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
            elif not await self._transfer(id, path):
                return
            await self._stream.drain()

    async def _transfer(self, id: bytes, path: str) -> bool:
        """Transfer a file; returns whether the connection is still usable."""
        if id == b"SEND":
            name, _, mode = path.rpartition(",")
            return await self._receive(name, int(mode) if mode.isdecimal() else None)
        if id == b"RECV":
            await self._send(path)
            return True
        self._fail(f"unknown command {id.hex()}")
        return False

    async def _send(self, path: str) -> None:
        """The client pulls a file."""
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

    async def _receive(self, path: str, mode: int | None) -> bool:
        """The client pushes a file; it is read to its end even if it cannot be stored."""
        upload = Upload(self._files, path, mode)
        try:
            return await self._fill(upload)
        finally:
            upload.release()

    async def _fill(self, upload: Upload) -> bool:
        while (header := await self._exactly(_REQUEST.size)) is not None:
            id, length = _REQUEST.unpack(header)
            if id == b"DONE":
                error = upload.store(length)
                if error is None:
                    self._stream.write(_REQUEST.pack(b"OKAY", 0))
                else:
                    self._fail(f"couldn't create file: {error.strerror}")
                return True
            if id != b"DATA" or length > _CHUNK:
                self._fail(f"invalid data message {id.hex()}")
                return False
            chunk = await self._exactly(length)
            if chunk is None:
                return False
            upload.take(chunk)
        return False

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
        """The entries of a folder, including `.` and `..`."""
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
        """The next `count` bytes; None if the client is gone."""
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

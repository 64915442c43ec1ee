"""File transfer: what `adb push`, `adb pull` and `adb ls` speak.

https://android.googlesource.com/platform/packages/modules/adb/+/HEAD/SYNC.TXT
"""

import struct

from agentrl.phone.files import Files, Node
from agentrl.phone.transport import Stream

_CHUNK = 64 * 1024
_LONGEST_PATH = 1024
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_NO_SUCH_FILE = 2


async def serve(files: Files, stream: Stream) -> None:
    """Serve one client until it quits."""
    reader = _Reader(stream)
    while (request := await reader.exactly(8)) is not None:
        id, length = struct.unpack("<4sI", request)
        if id == b"QUIT" or length > _LONGEST_PATH:
            return
        told = await reader.exactly(length)
        if told is None:
            return
        path = told.decode("utf-8", "surrogateescape")
        if id == b"SEND":
            await _receive(files, stream, reader, path)
        elif id in _ANSWERS:
            _ANSWERS[id](files, stream, path)
        else:
            _fail(stream, f"unknown request {id!r}")
            return


class _Reader:
    """Reads an exact number of bytes from a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def exactly(self, count: int) -> bytes | None:
        """The next bytes; None if the client is gone."""
        while len(self._buffer) < count:
            chunk = await self._stream.read()
            if not chunk:
                return None
            self._buffer += chunk
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data


def _fail(stream: Stream, message: str) -> None:
    text = message.encode("utf-8", "surrogateescape")
    stream.write(struct.pack("<4sI", b"FAIL", len(text)) + text)


def _size(node: Node) -> int:
    return 4096 if node.content is None else len(node.content)


def _stat(files: Files, stream: Stream, path: str) -> None:
    node = files.find(path)
    mode, size, mtime = (0, 0, 0) if node is None else (node.mode, _size(node), node.mtime)
    stream.write(struct.pack("<4sIII", b"STAT", mode, size, mtime))


def _stat_v2(id: bytes, node: Node | None) -> bytes:
    if node is None:
        return _STAT_V2.pack(id, _NO_SUCH_FILE, *(0,) * 10)
    times = (node.mtime,) * 3
    return _STAT_V2.pack(id, 0, 1, 1, node.mode, 1, 2000, 2000, _size(node), *times)


def _list(files: Files, stream: Stream, path: str) -> None:
    for name, node in _entries(files, path):
        encoded = name.encode("utf-8", "surrogateescape")
        head = (b"DENT", node.mode, _size(node), node.mtime, len(encoded))
        stream.write(struct.pack("<4s4I", *head) + encoded)
    stream.write(b"DONE" + bytes(16))


def _list_v2(files: Files, stream: Stream, path: str) -> None:
    for name, node in _entries(files, path):
        encoded = name.encode("utf-8", "surrogateescape")
        stream.write(_stat_v2(b"DNT2", node) + struct.pack("<I", len(encoded)) + encoded)
    stream.write(b"DONE" + bytes(72))


def _entries(files: Files, path: str) -> list[tuple[str, Node]]:
    try:
        names = files.names(path)
    except OSError:
        return []
    nodes = ((name, files.find(f"{path}/{name}")) for name in names)
    return [(name, node) for name, node in nodes if node is not None]


def _send(files: Files, stream: Stream, path: str) -> None:
    """The client pulls a file."""
    try:
        content = files.read(path)
    except OSError as error:
        _fail(stream, f"open failed: {error.strerror}")
        return
    for start in range(0, len(content), _CHUNK):
        chunk = content[start : start + _CHUNK]
        stream.write(struct.pack("<4sI", b"DATA", len(chunk)) + chunk)
    stream.write(b"DONE" + bytes(4))


async def _receive(files: Files, stream: Stream, reader: _Reader, told: str) -> None:
    """The client pushes a file: `path,mode`, then its data."""
    path, _, mode = told.rpartition(",")
    content = bytearray()
    while (header := await reader.exactly(8)) is not None:
        id, length = struct.unpack("<4sI", header)
        if id == b"DONE":
            try:
                files.make_folders(path.rpartition("/")[0] or "/")
                files.write(path, bytes(content), mode=int(mode), mtime=length)
            except (OSError, ValueError) as error:
                _fail(stream, f"couldn't create file: {error}")
                return
            stream.write(struct.pack("<4sI", b"OKAY", 0))
            return
        chunk = await reader.exactly(length) if id == b"DATA" and length <= _CHUNK else None
        if chunk is None:
            _fail(stream, f"invalid data message {id!r}")
            return
        content += chunk


_ANSWERS = {
    b"STAT": _stat,
    b"STA2": lambda files, stream, path: stream.write(_stat_v2(b"STA2", files.find(path))),
    b"LST2": lambda files, stream, path: stream.write(_stat_v2(b"LST2", files.find(path))),
    b"LIST": _list,
    b"LIS2": _list_v2,
    b"RECV": _send,
}

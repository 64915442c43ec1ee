import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual_phone.packet_client import PacketClient, serving
from virtual_phone.protocol import file_sync
from virtual_phone.system.file_system import FileSystem

IDS = [b"STAT", b"STA2", b"LST2", b"LIST", b"LIS2", b"RECV", b"SEND", b"DATA"]


class Pieces:
    """A stream that yields the given chunks and records everything written."""

    def __init__(self, data: bytes, cuts: list[int]) -> None:
        self.written = b""
        self._pieces = []
        at = turn = 0
        while at < len(data):
            step = cuts[turn % len(cuts)]
            self._pieces.append(data[at : at + step])
            at, turn = at + step, turn + 1

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def write(self, data: bytes | memoryview) -> None:
        self.written += data

    async def drain(self) -> None:
        pass


def talk(data: bytes, files: FileSystem | None = None, cuts: list[int] | None = None) -> bytes:
    stream = Pieces(data, cuts or [1 << 20])
    asyncio.run(asyncio.wait_for(file_sync.serve(files or FileSystem(), stream), 30))  # type: ignore[arg-type]
    return stream.written


def request(id: bytes, path: bytes) -> bytes:
    return struct.pack("<4sI", id, len(path)) + path


def push(path: bytes, content: bytes, chunk: int, mtime: int = 5) -> bytes:
    data = request(b"SEND", path + b",33188")
    for start in range(0, len(content), chunk):
        piece = content[start : start + chunk]
        data += struct.pack("<4sI", b"DATA", len(piece)) + piece
    return data + struct.pack("<4sI", b"DONE", mtime)


@given(
    st.binary(max_size=300),
    st.integers(1, 60),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
@settings(deadline=None)
def test_a_pushed_file_can_be_pulled_whatever_its_chunks(
    content: bytes, chunk: int, cuts: list[int]
) -> None:
    files = FileSystem()
    asked = push(b"/sdcard/new/x", content, chunk) + request(b"STAT", b"/sdcard/new/x")
    asked += request(b"RECV", b"/sdcard/new/x") + struct.pack("<4sII", b"QUIT", 0, 9)
    said = talk(asked, files, cuts)
    assert said[:8] == struct.pack("<4sI", b"OKAY", 0)
    assert said[8:24] == struct.pack("<4sIII", b"STAT", 0o100644, len(content), 5)
    data = struct.pack("<4sI", b"DATA", len(content)) + content if content else b""
    assert said[24:] == data + struct.pack("<4sI", b"DONE", 0)
    assert files.read("/sdcard/new/x") == content


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(IDS), st.binary(max_size=40)).map(lambda r: request(*r)),
            st.binary(max_size=30),
            st.just(push(b"/sdcard/y", b"abc", 2)),
        ),
        max_size=8,
    ),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
@settings(deadline=None)
def test_garbage_is_either_answered_or_rejected(asked: list[bytes], cuts: list[int]) -> None:
    files = FileSystem()
    talk(b"".join(asked), files, cuts)
    kept = sum(len(node.content or b"") for _, node in files.all())
    assert files.num_free == files.capacity - kept, "nothing stays reserved"


def test_folders_are_listed_in_both_versions_and_stat_as_folders() -> None:
    files = FileSystem()
    files.make_folders("/sdcard/a/b")
    files.write("/sdcard/a/x", b"12345", mtime=9)
    said = talk(request(b"LIST", b"/sdcard/a"), files)
    names, at = [], 0
    while said[at : at + 4] == b"DENT":
        mode, size, mtime, length = struct.unpack_from("<4I", said, at + 4)
        names.append((said[at + 20 : at + 20 + length].decode(), mode >> 12, size, mtime))
        at += 20 + length
    assert [name for name, *_ in names] == [".", "..", "b", "x"]
    assert names[3][1:] == (8, 5, 9)
    assert said[at:] == b"DONE" + bytes(16)
    said = talk(request(b"LIS2", b"/sdcard/a"), files)
    assert said.endswith(b"DONE" + bytes(72))
    assert said.count(b"DNT2") == 4
    said = talk(request(b"STA2", b"/sdcard"), files)
    assert struct.unpack_from("<4sIQQI", said)[4] >> 12 == 4
    assert struct.unpack_from("<4sI", talk(request(b"LST2", b"/nowhere"), files))[1] == 2


def test_the_aliases_of_sdcard_are_one_folder() -> None:
    files = FileSystem()
    talk(push(b"/storage/emulated/0/x", b"1", 9), files)
    assert files.read("/sdcard/x") == files.read("/storage/self/primary/x") == b"1"
    assert files.names("/sdcard") == files.names("/storage/emulated/0")


@pytest.mark.parametrize(
    ("path", "reason"),
    [(b"/sdcard,33188", b"Is a directory"), (b"/sdcard/f/x,33188", b"Not a directory"),
     (b"/sdcard/x", b"Invalid argument"), (b"/sdcard/x,-1", b"Invalid argument")],
)  # fmt: skip
def test_a_file_that_cannot_be_stored_is_read_to_its_end_and_rejected(
    path: bytes, reason: bytes
) -> None:
    files = FileSystem()
    files.write("/sdcard/f", b"")
    sent = request(b"SEND", path) + struct.pack("<4sI", b"DATA", 3) + b"abc"
    sent += struct.pack("<4sI", b"DONE", 4)
    said = talk(sent + request(b"STAT", b"/"), files)
    assert said.startswith(b"FAIL")
    assert reason in said
    assert said[-16:-12] == b"STAT", "the next request is answered"


def test_a_file_larger_than_the_free_space_is_rejected_and_never_stored() -> None:
    files = FileSystem()
    files.limit_free(1000)
    said = talk(push(b"/sdcard/x", bytes(5000), 100), files)
    assert b"No space left on device" in said
    assert files.num_free == 1000
    assert files.find("/sdcard/x") is None


async def test_a_client_that_leaves_during_a_push_releases_its_space() -> None:
    async with serving() as phone:
        free = phone.phone.files.num_free
        wire = await PacketClient.to(phone.port)
        wire.send(0x4E45504F, 5, 0, b"sync:\0")
        remote = (await wire.next()).arg0
        data = request(b"SEND", b"/sdcard/x,33188") + struct.pack("<4sI", b"DATA", 60_000)
        wire.send(0x45545257, 5, remote, data + bytes(60_000))
        async with asyncio.timeout(30):
            while phone.phone.files.num_free == free:
                await asyncio.sleep(0.001)
            wire.close()
            while phone.phone.files.num_free != free:
                await asyncio.sleep(0.001)


def test_links_are_pushed_listed_and_followed_as_by_adbd() -> None:
    files = FileSystem()
    folder = b"/data/local/tmp/"
    files.write("/data/local/tmp/x", b"12345", mtime=9)
    sent = request(b"SEND", folder + b"l,41471") + struct.pack("<4sI", b"DATA", 2) + b"x\0"
    sent += struct.pack("<4sI", b"DONE", 4)  # the mode is octal 120777
    assert talk(sent, files)[:4] == b"OKAY"
    assert talk(sent, files)[:4] == b"OKAY", "a link is replaced"
    assert files.stat("/data/local/tmp/l", follow=False).target == "x"
    mode, size = struct.unpack("<4x2I4x", talk(request(b"STAT", folder + b"l"), files))
    assert (mode, size) == (0o120777, 1)
    assert struct.unpack_from("<4sIQQI", talk(request(b"LST2", folder + b"l"), files))[4] == mode
    assert struct.unpack_from("<4sIQQI", talk(request(b"STA2", folder + b"l"), files))[4] >> 12 == 8
    assert talk(request(b"RECV", folder + b"l"), files)[8:13] == b"12345"
    talk(push(folder + b"l", b"new", 9), files)
    assert files.read("/data/local/tmp/x") == b"new"
    files.make_link("/data/local/tmp/loop", "loop")
    assert struct.unpack_from("<4sI", talk(request(b"STA2", folder + b"loop"), files))[1] == 40
    assert b"Too many symbolic links" in talk(request(b"RECV", folder + b"loop/x"), files)
    assert b"Permission denied" in talk(sent.replace(folder + b"l", b"/sdcard/" + b"a" * 9), files)

import io
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl import replay
from agentrl.replay.frames import banded_png, frame_pack, frame_store, pack_sweep
from agentrl.replay.frames.banded_png import cut_into_bands
from agentrl.replay.frames.frame_store import FrameStore
from agentrl.replay.frames.pack_sweep import PackSweeper
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_reader import Run
from agentrl.runs.run_paths import pack_file
from tests.replay import packs
from tests.replay.episodes import screen


def test_a_frame_comes_back_pixel_by_pixel_and_is_stored_once(tmp_path: Path) -> None:
    image = screen(1)
    with Recorder(tmp_path) as recorder:
        name = recorder.frame(image)
        assert recorder.frame(image.copy()) == name
        image[:] = 0  # the recorder must have kept the original
        recorder.flush()
    read = replay.open(tmp_path).frame(name)
    assert read is not None
    assert np.array_equal(read, screen(1))
    assert packs.frame_ids(tmp_path) == [name]


def test_the_id_is_that_of_the_pixels_whatever_the_array_was_before(tmp_path: Path) -> None:
    with closing(FrameStore(tmp_path)) as store:
        base = screen(0)
        view = base[:]
        view.flags.writeable = False  # but its base is not
        for number in range(40):
            base[:] = screen(number)
            final = screen(number)  # often where an earlier one was
            final.flags.writeable = False
            expected = cut_into_bands(base).id
            assert [store.add(image) for image in (base, view, final, final)] == [expected] * 4


@pytest.mark.parametrize("deflate", ["isal", "zlib"])
@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 5, 3), (64, 36, 3), (129, 7, 3)])
def test_any_image_survives_as_a_png(
    deflate: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if deflate == "zlib":
        monkeypatch.setattr(banded_png, "_compressor", zlib.compressobj)
        monkeypatch.setattr(banded_png, "_decompressor", zlib.decompressobj)
        monkeypatch.setattr(banded_png, "_adler32", zlib.adler32)
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with Recorder(tmp_path) as recorder:
        name = recorder.frame(image)
    (tmp_path / "episodes").mkdir(exist_ok=True)
    content = replay.open(tmp_path).frame_bytes(name)
    assert np.array_equal(
        cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB), image
    )
    with PIL.Image.open(io.BytesIO(content)) as checked:  # verifies all checksums
        checked.load()
    at = content.index(b"IDAT")
    length = int.from_bytes(content[at - 4 : at])
    assert len(zlib.decompress(content[at + 4 : at + 4 + length])) == shape[0] * (1 + 3 * shape[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 8, 9]), st.lists(st.integers(0, 3), max_size=4))))
def test_images_that_share_bands_are_stored_unchanged(pictures) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, images = Path(folder), []
        for width, kinds in pictures:
            parts = [np.full((1 if kind == 3 else 64, width, 3), kind, np.uint8) for kind in kinds]
            images.append(np.concatenate([*parts, np.full((2, width, 3), 9, np.uint8)]))
        with Recorder(run) as recorder:
            names = [recorder.frame(image) for image in images]
        read = replay.open(run)
        for name, image in zip(names, images, strict=True):
            assert np.array_equal(read.frame(name), image)


def test_unchanged_bands_are_compressed_once(tmp_path: Path, monkeypatch) -> None:
    rows: list[int] = []
    compress = banded_png.compress
    monkeypatch.setattr(
        banded_png, "compress", lambda part: rows.append(len(part)) or compress(part)
    )
    image = np.random.default_rng(0).integers(0, 256, (640, 8, 3), np.uint8)
    with Recorder(tmp_path) as recorder:
        recorder.frame(image)
        image[130, 0] += 1
        recorder.frame(image)
    assert rows == [64] * 11


def test_the_same_bytes_in_another_shape_are_another_frame() -> None:
    flat = np.zeros((4, 9, 3), np.uint8)
    assert cut_into_bands(flat).id != cut_into_bands(flat.reshape(9, 4, 3)).id
    assert (
        cut_into_bands(flat).id
        == cut_into_bands(np.zeros((9, 4, 3), np.uint8).transpose(1, 0, 2)).id
    )


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)]
)
def test_arrays_that_are_not_images_are_refused(tmp_path: Path, image: np.ndarray) -> None:
    with Recorder(tmp_path) as recorder, pytest.raises(ValueError, match="uint8"):
        recorder.frame(image)


def test_a_slow_disk_drops_frames_with_a_warning_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate, write = threading.Event(), frame_pack.PackWriter.add

    def slowly(*arguments: Any) -> None:
        assert gate.wait(60)
        write(*arguments)

    monkeypatch.setattr(frame_pack.PackWriter, "add", slowly)
    monkeypatch.setattr(frame_store, "MAX_WAITING_BYTES", 2 * screen(0).nbytes)
    store = FrameStore(tmp_path)
    names = [store.add(screen(number)) for number in range(4)]
    assert caplog.text.count("the disk cannot keep up; 1 of 3 frames") == 1
    gate.set()
    store.flush()
    assert set(packs.frame_ids(tmp_path)) == set(names[:2])
    assert store.add(screen(3)) == names[3]  # a dropped frame may be added again
    store.close()
    assert names[3] in packs.frame_ids(tmp_path)


def test_a_broken_writer_raises_instead_of_blocking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room to encode")

    monkeypatch.setattr(frame_pack.PackWriter, "add", fail)
    store = FrameStore(tmp_path)
    store.add(screen(1))
    with pytest.raises(OSError, match="no room to encode"):
        store.flush()
    with pytest.raises(OSError, match="no room to encode"):
        store.add(screen(2))
    with pytest.raises(OSError, match="no room to encode"):
        store.close()


def test_a_failing_disk_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(frame_pack.PackWriter, "add", fail)
    recorder = Recorder(tmp_path)
    recorder.frame(screen(1))
    with pytest.raises(OSError, match="no space left"):
        recorder.close()


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE frames SET width = 100000", "UPDATE frames SET width = -1",
        "UPDATE frames SET width = 'wide'", "UPDATE frames SET bands = 5",
        "UPDATE frames SET bands = x'01'", "UPDATE frames SET bands = x''",
        "UPDATE frames SET bands = x'ffffffffffffff7f'", "UPDATE bands SET height = 100000",
        "UPDATE bands SET height = 'high'", "UPDATE bands SET deflated = 7",
        "UPDATE bands SET adler = 'sum'", "UPDATE bands SET deflated = zeroblob(300000000)",
        "DELETE FROM bands", "DROP TABLE bands", "DROP TABLE frames",
        "DROP TABLE frames; CREATE VIEW frames AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n) SELECT i AS number, x'00' AS id, 1 AS width, 1 AS bands FROM n",
    ],
)  # fmt: skip
def test_a_damaged_pack_yields_no_frame(tmp_path: Path, harm: str, monkeypatch) -> None:
    monkeypatch.setattr(frame_pack, "_READ_TIMEOUT_S", 0.5)
    with Recorder(tmp_path) as recorder:
        name = recorder.frame(screen(1))
    with closing(sqlite3.connect(pack_file(tmp_path, "main"))) as harmed:
        harmed.executescript(harm)
    (tmp_path / "episodes").mkdir(exist_ok=True)
    assert replay.open(tmp_path).frame(name) is None
    assert replay.open(tmp_path).has_frame(name) in (True, False)


@pytest.mark.parametrize("content", [b"", b"broken", b"SQLite format 3\0" + b"x" * 5000])
def test_a_file_that_is_not_a_pack_yields_no_frame(tmp_path: Path, content: bytes) -> None:
    with Recorder(tmp_path) as recorder:
        name = recorder.frame(screen(1))
    pack_file(tmp_path, "main").write_bytes(content)
    (tmp_path / "episodes").mkdir(exist_ok=True)
    assert replay.open(tmp_path).frame(name) is None
    assert not replay.open(tmp_path).has_frame(name)


def test_bands_shared_by_successive_screens_are_stored_once(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (640, 8, 3), np.uint8)
    for _ in range(2):  # the second writer with the same name starts without known frames
        with Recorder(tmp_path) as recorder:
            for row in range(0, 640, 64):
                image[row] += 1
                recorder.frame(image)
    assert len(packs.frame_ids(tmp_path)) == 20
    assert packs.count_bands(tmp_path) == (10 + 9) + (10 + 9)


def test_bands_removed_by_another_process_are_written_again(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (128, 8, 3), np.uint8)
    with Recorder(tmp_path) as recorder:
        first = recorder.frame(image)
        recorder.flush()
        assert PackSweeper(pack_file(tmp_path, "main")).remove([first], math.inf) == [first]
        assert packs.count_bands(tmp_path) == 0
        image[0] += 1
        second = recorder.frame(image)
    assert np.array_equal(Run(tmp_path).frame(second), image)


def test_frames_stored_during_a_removal_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (128, 8, 3), np.uint8)
    stored: list[str] = []

    def store_one_more() -> None:
        image[0] += 1  # half of each screen is shared
        stored.append(recorder.frame(image))
        recorder.flush()

    with Recorder(tmp_path) as recorder:
        for _ in range(4):
            store_one_more()
        first = list(stored)
        sweeper = PackSweeper(pack_file(tmp_path, "main"))
        monkeypatch.setattr(pack_sweep, "_FRAMES_AT_ONCE", 1)
        monkeypatch.setattr(pack_sweep.time, "sleep", lambda seconds: store_one_more())
        assert sweeper.remove(first, math.inf) == first
    assert len(stored) > len(first) + 3
    assert sorted(packs.frame_ids(tmp_path)) == sorted(stored[4:])
    assert all(Run(tmp_path).frame(name) is not None for name in stored[4:])
    list(sweeper.new())
    assert sweeper.bytes == packs.stored_bytes(tmp_path)


_FRAMES_WRITER = """
import sys
from pathlib import Path
from agentrl.replay.frames.frame_store import FrameStore
from tests.replay.episodes import screen
store = FrameStore(Path(sys.argv[1]))
for number in range(10_000):
    name = store.add(screen(number))
    store.flush()
    print(name, flush=True)
"""


def test_kill_9_loses_no_written_frame(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    names: list[str] = []
    for _ in range(3):  # the next writer rolls back what the killed one began
        writer = subprocess.Popen(
            [sys.executable, "-c", _FRAMES_WRITER, str(tmp_path)],
            stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, text=True,
        )  # fmt: skip
        assert writer.stdout is not None
        for line in writer.stdout:
            names.append(line.strip())
            if len(names) % 20 == 0:
                break
        writer.send_signal(signal.SIGKILL)
        writer.stdout.close()
        writer.wait(10)
        run = Run(tmp_path)
        assert all(run.frame(name) is not None for name in names)
    assert len(set(names)) >= 20

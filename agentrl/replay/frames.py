"""Store pictures by the hash of their pixels, in the background."""

import logging
import math
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from agentrl.files import replacing
from agentrl.replay.bands import BandEncoder
from agentrl.replay.layout import frame_file
from agentrl.types import Image

log = logging.getLogger(__name__)

_REMEMBERED = 100_000
_SAID_EVERY_S = 30.0
REFRESH_S = 300.0
"""A frame that is seen again so long after its file was last touched is touched, or written, again:
pruning (`agentrl.replay.prune`) leaves alone what was touched lately."""


@dataclass(slots=True, kw_only=True)
class FrameStats:
    """What a store has done so far."""

    seen: int = 0
    stored: int = 0
    bytes: int = 0
    dropped: int = 0
    """Left out because the disk was behind: nobody waits for it."""


def frame_id(image: Image) -> str:
    """32 hexadecimal digits that name these pixels in this shape.

    Raises:
        ValueError: it is no uint8[H, W, 3].
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ValueError(f"a frame is uint8[H, W, 3], not {image.dtype}{list(image.shape)}")
    digest = xxhash.xxh3_128(repr(image.shape).encode())
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


class FrameStore:
    """Writes each picture once, as a PNG below `RUN/frames`.

    Args:
        run: the run's folder.
        waiting: bytes of pictures that may wait for the disk; what comes beyond is left out, and
            said so.
    """

    def __init__(self, run: Path, waiting: int = 512 << 20) -> None:
        self.stats = FrameStats()
        self._run = run
        self._known: dict[str, float] = {}
        """When each was last handed to the writer, on the monotonic clock."""
        self._lock = threading.Lock()
        self._room = waiting
        self._encoder = BandEncoder()
        self._said_at = -math.inf
        self._queue: queue.Queue[tuple[str, Image] | None] = queue.Queue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write_all, name="frames", daemon=True)
        self._thread.start()

    def add(self, image: Image) -> str:
        """Hand over one picture; its id, also where it is left out.

        Costs a hash (0.1 ms at 720x1280), and a copy where the picture is new and may be changed.

        Raises:
            ValueError: it is no uint8[H, W, 3].
            OSError: an earlier picture could not be written.
        """
        name = frame_id(image)
        self._raise_failure()
        assert self._thread.is_alive(), "this store is closed"
        with self._lock:
            self.stats.seen += 1
            if time.monotonic() - self._known.get(name, -math.inf) < REFRESH_S:
                return name
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if image.nbytes > self._room:
                if name not in self._known:
                    self.stats.dropped += 1
                    self._say_dropped()
                return name
            self._room -= image.nbytes
            self._known[name] = time.monotonic()
        changeable = image.flags.writeable or image.base is not None
        self._queue.put((name, image.copy() if changeable else image))
        return name

    def _say_dropped(self) -> None:
        if time.monotonic() - self._said_at > _SAID_EVERY_S:
            self._said_at = time.monotonic()
            log.warning(
                "the disk is behind: %d of %d frames are left out so far; run.frames=model or none "
                "records less",
                self.stats.dropped, self.stats.seen,
            )  # fmt: skip

    def _write_all(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                if self._failure is None:
                    self._write(*entry)
            except BaseException as error:  # Whatever it is, callers must not wait for ever.
                self._failure = error
                log.error("a frame could not be written, recording stops: %r", error)
            finally:
                with self._lock:
                    self._room += entry[1].nbytes
                self._queue.task_done()

    def _write(self, name: str, image: Image) -> None:
        path = frame_file(self._run, name)
        if _touched(path):
            return
        encoded = self._encoder.encode(image)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(encoded)
        self.stats.stored += 1
        self.stats.bytes += len(encoded)

    def flush(self) -> None:
        """Wait until everything handed over is on disk.

        Raises:
            OSError: something could not be written.
        """
        self._queue.join()
        self._raise_failure()

    def close(self) -> None:
        """Write what is left and end the thread; may be called twice.

        Raises:
            OSError: something could not be written.
        """
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if isinstance(self._failure, OSError):
            raise self._failure
        if self._failure is not None:
            raise OSError(f"a frame could not be written: {self._failure!r}") from self._failure


def _touched(path: Path) -> bool:
    """Whether a file is there, which then counts as shown just now."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True

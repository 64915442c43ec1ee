"""Store pictures by the hash of their pixels, in the background."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl.replay.frames.bands import Cut, cut
from agentrl.replay.frames.frame_pack import PackWriter
from agentrl.replay.run_layout import pack_file
from agentrl.types import Image

log = logging.getLogger(__name__)

_REMEMBERED = 100_000
_SAID_EVERY_S = 30.0
REFRESH_S = 300.0
"""A frame that is seen again so long after it was last touched is touched, or written, again:
pruning (`agentrl.replay.pruning`) leaves alone what was touched lately."""
_GATHERED_S = 0.25
_GATHERED_BYTES = 64 << 20
"""Frames of so long, or of so many bytes, are written together: the disk is waited for once."""


@dataclass(slots=True, kw_only=True)
class FrameStats:
    """What a store has done so far."""

    seen: int = 0
    stored: int = 0
    bytes: int = 0
    dropped: int = 0
    """Left out because the disk was behind: nobody waits for it."""


class FrameStore:
    """Writes each picture once, into `RUN/frames/<writer>.sqlite`.

    Args:
        run: the run's folder.
        writer: names the file; nobody else may write to it.
        waiting: bytes of pictures that may wait for the disk; what comes beyond is left out, and
            said so.
    """

    def __init__(self, run: Path, writer: str = "main", *, waiting: int = 512 << 20) -> None:
        self.stats = FrameStats()
        self._path = pack_file(run, writer)
        self._known: dict[str, float] = {}
        """When each was last handed to the writer, on the monotonic clock."""
        self._changed = threading.Condition()
        self._room = self._waiting_bytes = waiting
        self._said_at = -math.inf
        self._waiting: list[Cut] = []
        self._handed_over = self._settled = 0
        self._hurried = self._closing = False
        """Not to wait for more frames; to end when all is written."""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write_all, name="frames", daemon=True)
        self._thread.start()

    def add(self, image: Image) -> str:
        """Hand over one picture; its id, also where it is left out.

        Costs a hash (0.2 ms at 720x1280), and a copy where the picture is new and may be changed.

        Raises:
            ValueError: it is no uint8[H, W, 3].
            OSError: an earlier picture could not be written.
        """
        made = cut(image)
        name = made.id
        self._raise_failure()
        assert self._thread.is_alive(), "this store is closed"
        with self._changed:
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
        pixels = made.pixels
        if pixels is image and (image.flags.writeable or image.base is not None):
            made = replace(made, pixels=image.copy())
        with self._changed:
            self._waiting.append(made)
            self._handed_over += 1
            self._hurried = self._hurried or self._room < self._waiting_bytes - _GATHERED_BYTES
            if len(self._waiting) == 1 or self._hurried:
                self._changed.notify_all()
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
        pack: PackWriter | None = None
        while cuts := self._gathered():
            try:
                if self._failure is None:
                    pack = pack or PackWriter(self._path)
                    self._write(pack, cuts)
            except BaseException as error:  # Whatever it is, callers must not wait for ever.
                self._failure = error
                log.error("a frame could not be written, recording stops: %r", error)
            finally:
                with self._changed:
                    self._room += sum(made.pixels.nbytes for made in cuts)
                    self._settled += len(cuts)
                    self._changed.notify_all()
        if pack is not None:
            pack.close()

    def _gathered(self) -> list[Cut]:
        """The frames that came in a while; none where there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: self._hurried or self._closing, _GATHERED_S)
            cuts, self._waiting, self._hurried = self._waiting, [], False
        return cuts

    def _write(self, pack: PackWriter, cuts: Sequence[Cut]) -> None:
        stored, size = pack.add(cuts)
        self.stats.stored += stored
        self.stats.bytes += size

    def flush(self) -> None:
        """Wait until everything handed over is on disk.

        Raises:
            OSError: something could not be written.
        """
        with self._changed:
            upto, self._hurried = self._handed_over, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled >= upto)
        self._raise_failure()

    def close(self) -> None:
        """Write what is left and end the thread; may be called twice.

        Raises:
            OSError: something could not be written.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if isinstance(self._failure, OSError):
            raise self._failure
        if self._failure is not None:
            raise OSError(f"a frame could not be written: {self._failure!r}") from self._failure

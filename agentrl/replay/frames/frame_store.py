"""Store images in the background, keyed by the hash of their pixels."""

import logging
import math
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

from agentrl.replay.frames.banded_png import BandedImage, cut_into_bands
from agentrl.replay.frames.frame_pack import PackWriter
from agentrl.runs.run_paths import pack_file
from agentrl.types import Image, is_final

log = logging.getLogger(__name__)

_MAX_KNOWN = 100_000
_WARN_EVERY_S = 30.0
REFRESH_S = 300.0
"""Seconds after which a frame that is seen again is touched (or written) again, because pruning
(`agentrl.replay.pruning`) keeps recently touched frames."""
_BATCH_S = 0.25
_BATCH_BYTES = 64 << 20
"""Frames that arrive within this time, up to this size, share a transaction and a disk sync."""

MAX_WAITING_BYTES = 512 << 20
"""Maximum bytes of queued images; beyond that, images are dropped with a warning."""


class FrameStore:
    """Store of images, which writes each distinct image once to `RUN/frames/<writer>.sqlite`.

    Args:
        run: the run's folder.
        writer: names the file; only one process may write to it.
    """

    def __init__(self, run: Path, writer: str = "main") -> None:
        self._path = pack_file(run, writer)
        self._names: dict[int, tuple[weakref.ref[Image], str]] = {}
        """Frame ids of immutable images by their `id()`: unchanged screens reuse the same array."""
        self._known: dict[str, float] = {}
        """Monotonic time at which each frame id was last queued."""
        self._changed = threading.Condition()
        self._room = MAX_WAITING_BYTES
        self._seen = self._dropped = 0
        self._warned_at = -math.inf
        self._waiting: list[BandedImage] = []
        self._handed_over = self._settled = 0
        self._hurried = self._closing = False
        """`_hurried`: write now without waiting for more frames; `_closing`: end the thread once
        everything is written."""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write_all, name="frames", daemon=True)
        self._thread.start()

    def add(self, image: Image) -> str:
        """Queue one image and return its id, even if the image is dropped.

        Costs a hash (0.2 ms at 720x1280) unless the same read-only array has come before, plus a
        copy if the image is new and still writable.

        Raises:
            ValueError: the image is not uint8[H, W, 3].
            OSError: an earlier image could not be written.
        """
        cut = None
        if (name := self._name_of(image)) is None:
            cut = cut_into_bands(image)
            name = cut.id
            self._remember(image, name)
        self._raise_failure()
        assert self._thread.is_alive(), "this store is closed"
        with self._changed:
            self._seen += 1
            if time.monotonic() - self._known.get(name, -math.inf) < REFRESH_S:
                return name
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            if image.nbytes > self._room:
                # Drop the image rather than let rollouts wait for the disk.
                if name not in self._known:
                    self._dropped += 1
                    if time.monotonic() - self._warned_at > _WARN_EVERY_S:
                        self._warned_at = time.monotonic()
                        log.warning(
                            "the disk cannot keep up; %d of %d frames dropped so far. Set "
                            "run.frames=model or none to record less", self._dropped, self._seen,
                        )  # fmt: skip
                return name
            self._room -= image.nbytes
            self._known[name] = time.monotonic()
        cut = cut or cut_into_bands(image)
        # The caller may modify a writable image before it is on disk.
        if cut.pixels is image and not is_final(image):
            cut = replace(cut, pixels=image.copy())
        with self._changed:
            self._waiting.append(cut)
            self._handed_over += 1
            self._hurried = self._hurried or MAX_WAITING_BYTES - self._room > _BATCH_BYTES
            if len(self._waiting) == 1 or self._hurried:
                self._changed.notify_all()
        return name

    def _name_of(self, image: Image) -> str | None:
        """Return an image's id if the same array was added before, else None."""
        known = self._names.get(id(image))
        return known[1] if known and known[0]() is image and is_final(image) else None

    def _remember(self, image: Image, name: str) -> None:
        if is_final(image):
            key, names = id(image), self._names
            names[key] = weakref.ref(image, lambda _: names.pop(key, None)), name

    def _write_all(self) -> None:
        pack: PackWriter | None = None
        while cuts := self._next_batch():
            try:
                if self._failure is None:
                    pack = pack or PackWriter(self._path)
                    pack.add(cuts)
            except BaseException as error:
                # Whatever failed, callers waiting in `flush` must not wait forever.
                self._failure = error
                log.error("frame recording stopped because a frame could not be written: %r", error)
            finally:
                with self._changed:
                    self._room += sum(cut.pixels.nbytes for cut in cuts)
                    self._settled += len(cuts)
                    self._changed.notify_all()
        if pack is not None:
            pack.close()

    def _next_batch(self) -> list[BandedImage]:
        """Wait for the next frames; return none once the store is closed and all are written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: self._hurried or self._closing, _BATCH_S)
            cuts, self._waiting, self._hurried = self._waiting, [], False
        return cuts

    def flush(self) -> None:
        """Wait until every queued frame is on disk."""
        with self._changed:
            upto, self._hurried = self._handed_over, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled >= upto)
        self._raise_failure()

    def close(self) -> None:
        """Write all queued frames and end the thread; may be called twice."""
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

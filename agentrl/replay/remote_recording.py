"""Record a run on a machine that cannot access the run's folder.

A process on such a machine records into a spool: a folder with the layout of a run. New content is
sent to the machine with the run's folder, and leaves the spool once it is written there.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentrl.files import move_into_place
from agentrl.replay.frames.frame_pack import PackRows, PackWriter, read_rows, remove_rows

log = logging.getLogger(__name__)

_EVERY_S = 0.3
_RETRY_S = 5.0
_APPENDED = (".jsonl", ".log")
"""Suffixes of files that grow; all others are complete once they have their final name."""
_PACK = ".sqlite"
_JOURNAL = "-journal"
"""Suffix of the journal file that SQLite writes next to a pack."""
_INDEX = "index-"
_MAX_BYTES = 64 << 20
"""Maximum bytes of a parcel, unless a single file is larger."""


@dataclass(slots=True, kw_only=True)
class Parcel:
    """New content of a spool. Applying a parcel twice has the same effect as applying it once."""

    files: list[tuple[str, bytes]] = field(default_factory=list)
    """Paths within the run, and contents."""
    packs: list[tuple[str, PackRows]] = field(default_factory=list)
    """Paths of packs within the run, and new frames."""
    lines: list[tuple[str, int, bytes]] = field(default_factory=list)
    """Paths within the run, offsets in the spool's files, and the data appended there."""
    removed: list[str] = field(default_factory=list)
    """Paths of files that were sent before, but no longer exist."""

    def __bool__(self) -> bool:
        return bool(self.files or self.packs or self.lines or self.removed)


class Spool:
    """A folder to record into, which a thread empties.

    Args:
        deliver: sends a parcel and returns once it is written; if it raises an exception, the spool
            retries.
    """

    def __init__(self, deliver: Callable[[Parcel], None]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="agentrl-spool-"))
        self._deliver = deliver
        self._sent: dict[str, int] = {}
        """Bytes delivered of each growing file."""
        self._seen: dict[str, int] = {}
        """Modification times of live state files, which are replaced repeatedly."""
        self._delivering = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._deliver_all, name="spool", daemon=True)
        self._thread.start()

    def _deliver_all(self) -> None:
        warned = False
        while not self._closed.wait(_EVERY_S):
            try:
                self.flush()
                warned = False
            except Exception as error:  # `deliver` may raise anything; the spool keeps its files.
                if not warned:
                    log.warning(
                        "recordings stay in %s until they can be delivered: %s", self.folder, error
                    )
                warned = True
                self._closed.wait(_RETRY_S)

    def flush(self) -> None:
        """Deliver everything now in the spool; undelivered content stays."""
        with self._delivering:
            # Measure the growing files first. A file named in a line was complete before the line.
            growing = {self._name(path): path for path in self._files(growing=True)}
            # Send the index last, because the files and scores of its episodes must already exist.
            order = sorted(growing, key=lambda name: (_INDEX in name, name))
            sizes = {name: growing[name].stat().st_size for name in order}
            while self._deliver_files():
                pass
            lines = list[tuple[str, int, bytes]]()
            for name, size in sizes.items():
                at = self._sent.get(name, 0)
                if size <= at:
                    continue
                with growing[name].open("rb") as file:
                    file.seek(at)
                    data = file.read(size - at)
                # Send only whole lines of JSON Lines, but everything in a log.
                if not name.endswith(".log"):
                    data = data[: data.rfind(b"\n") + 1]
                if data:
                    lines.append((name, at, data))
            if lines:
                self._deliver(Parcel(lines=lines))
                self._sent |= {name: at + len(data) for name, at, data in lines}

    def _deliver_files(self) -> bool:
        """Deliver complete files and frames; return whether there may be more."""
        parcel, size = Parcel(), 0
        sent: list[tuple[Path, os.stat_result]] = []
        for path in list(self._files(growing=False)):
            if size > _MAX_BYTES:
                break
            name, status = self._name(path), path.stat()
            if path.suffix == _PACK:
                rows = read_rows(path)
                if rows.frames:
                    parcel.packs.append((name, rows))
                    size += sum(len(deflated) for *_, deflated in rows.bands)
            elif self._seen.get(name) != status.st_mtime_ns:
                parcel.files.append((name, path.read_bytes()))
                size += status.st_size
                sent.append((path, status))
        parcel.removed += [name for name in self._seen if not (self.folder / name).exists()]
        if not parcel:
            return False
        self._deliver(parcel)
        for path, status in sent:
            self._forget(path, status)
        for name, rows in parcel.packs:
            remove_rows(self.folder / name, rows)
        for name in parcel.removed:
            del self._seen[name]
        return size > _MAX_BYTES

    def _forget(self, path: Path, sent: os.stat_result) -> None:
        """Remove a delivered file, unless it has been or will be replaced."""
        if path.parent.name == "live":
            self._seen[self._name(path)] = sent.st_mtime_ns
            return
        try:
            now = path.stat()
        except FileNotFoundError:
            return
        if (now.st_ino, now.st_mtime_ns) == (sent.st_ino, sent.st_mtime_ns):
            path.unlink()

    def _files(self, *, growing: bool) -> Iterator[Path]:
        for path in self.folder.rglob("*"):
            # A leading dot marks an incomplete file.
            is_temporary = path.name[0] == "." or path.name.endswith(_JOURNAL)
            if not is_temporary and (path.suffix in _APPENDED) is growing and path.is_file():
                yield path

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def close(self, deadline_s: float) -> None:
        """Deliver the rest and remove the spool; if not done in time, leave the folder."""
        self._closed.set()
        self._thread.join(deadline_s)
        ends = time.monotonic() + deadline_s
        while True:
            try:
                self.flush()
                break
            except Exception as error:  # `deliver` may raise anything.
                if time.monotonic() > ends:
                    log.error(
                        "recordings could not be delivered and remain in %s: %s", self.folder, error
                    )
                    return
                time.sleep(_EVERY_S)
        shutil.rmtree(self.folder, ignore_errors=True)


class SpoolReceiver:
    """Writes the parcels of several spools into a run's folder."""

    def __init__(self, run: Path) -> None:
        self._run = run.resolve()
        self._bases: dict[tuple[str, str], int] = {}
        """Size of each growing file before a spool's first parcel, by spool and name."""
        self._packs: dict[str, PackWriter] = {}

    def apply(self, spool: str, parcel: Parcel) -> None:
        """Write a parcel.

        Raises:
            OSError: the disk is full.
            ValueError: a path leaves the run's folder.
        """
        for name, data in parcel.files:
            path = self._path(name)
            partial = path.with_name(f".{os.getpid()}.{path.name}")
            partial.write_bytes(data)
            move_into_place(partial, path)
        for name, rows in parcel.packs:
            if name not in self._packs:
                self._packs[name] = PackWriter(self._path(name))
            self._packs[name].add_rows(rows)
        for name, offset, data in parcel.lines:
            self._append(spool, name, offset, data)
        for name in parcel.removed:
            self._path(name).unlink(missing_ok=True)

    def _append(self, spool: str, name: str, offset: int, data: bytes) -> None:
        file = os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            base = self._bases.get((spool, name))
            if base is None:
                base = os.fstat(file).st_size
                # A killed writer leaves an incomplete line.
                if base and os.pread(file, 1, base - 1) != b"\n":
                    base += os.pwrite(file, b"\n", base)
                self._bases[spool, name] = base
            if os.pwrite(file, data, base + offset) < len(data):
                raise OSError(errno.ENOSPC, "the disk is full", name)
        finally:
            os.close(file)

    def _path(self, name: str) -> Path:
        path = (self._run / name).resolve()
        if not path.is_relative_to(self._run):
            raise ValueError(f"{name!r} leaves the run's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def close(self) -> None:
        """Close the frame packs."""
        packs, self._packs = self._packs, {}
        for pack in packs.values():
            try:
                pack.close()
            except sqlite3.Error as error:
                log.warning("%s", error)

"""Share files and folders among the nodes of a job, which need not share a disk or memory.

One actor on each node lists and reads existing files and writes missing ones. A node that sees the
same files under the same path, as on a shared disk, uses those.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from agentrl.cluster.placement import Node
from agentrl.cluster.ray_actor_calls import on_node, short_reason
from agentrl.errors import ClusterError
from agentrl.files import atomic_replace

log = logging.getLogger(__name__)

MAX_BYTES = 5 * 10**9
MAX_FILES = 20_000
"""Limits on a folder of user files."""
_CHUNK = 64 << 20
"""Bytes sent at a time."""
_SETTLED_S = 2.0
"""Seconds during which a changed file's digest is not kept, since file system clocks are coarse."""
_SMALL = 1 << 20
"""Size in bytes below which files are read again instead of remembering their digests."""
_MEMORY = "agentrl-weights-"
"""Folder prefix used by `published_weights`, which removes the folders of dead processes."""

Listing = dict[str, str]
"""Maps each file's path within the folder, or "." for a single file, to its size and digest."""


class NodeFiles:
    """Copies this job's files to the nodes where its actors run.

    Args:
        nodes: nodes of the cluster that this process has joined.
        deadline_s: deadline for one file or folder.
        weight_folders: maps the ids of nodes without enough shared memory to their folders for new
            weights.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        deadline_s: float,
        weight_folders: Mapping[str, Path],
    ) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._deadline_s = deadline_s
        self._weight_folders = weight_folders
        self._actors: dict[str, Any] = {}
        self._lock = threading.RLock()
        """Lets the actors work on one file or folder at a time."""

    def add(self, node: Node) -> None:
        """Add a node, or add it again after it was dropped because its actor died."""
        self._nodes[node.id] = node

    def share(
        self,
        path: Path,
        source: Node,
        *,
        keep: bool = False,
        to: Collection[str] | None = None,
        weights: bool = True,
        names: Sequence[str] | None = None,
    ) -> dict[str, Path]:
        """Make a file or folder available on other nodes.

        Args:
            path: absolute path of the file or folder.
            source: the node that has it.
            names: the files of a folder to copy, limited in number and size; None copies all files,
                without limits.
            keep: whether copies outlive the job, so that later jobs find them by their content.
                Otherwise the original and its copies replace earlier versions with the same name
                up to the number (`version-1`, `version-2`), copies are in shared memory if
                available, and the folder is removed with them.
            to: ids of the nodes that need the files; None for all nodes.
            weights: whether the nodes need model weights in the folder, too.

        Returns:
            Maps the id of `source` and of each such node to the path there; omits dead nodes.

        Raises:
            ClusterError: the files could not be read or written in time, or are too large.
        """
        with self._lock:
            if not keep:
                self._ask({source.id: self._actor(source.id).own.remote(path)})
            asked = [n for n in self._nodes if to is None or n in to or n == source.id]
            listings = self._list(path, asked, names)
            if not weights:
                listings = {n: _without_weights(listing) for n, listing in listings.items()}
            wanted = listings.get(source.id)
            if wanted is None:
                raise ClusterError(f"{path}: does not exist on node {source.name}")
            # Nodes with a shared disk already have it, under the same path.
            places = {n: path for n, listing in listings.items() if listing == wanted}
            copies = {n: self._actor(n) for n in listings if n not in places}
            found = self._ask(
                {
                    n: actor.prepare.remote(path.name, wanted, keep, names is not None)
                    for n, actor in copies.items()
                }
            )
            # Kept copies may exist from an earlier job.
            missing = {n: copies[n] for n, (_, complete) in found.items() if not complete}
            if missing:
                if names is not None:
                    self._check_size(path, wanted, missing)
                self._send(path, wanted, self._actor(source.id), missing)
                self._ask({n: actor.finish.remote() for n, actor in missing.items()})
            places |= {n: place for n, (place, _) in found.items()}
            return {n: place for n, place in places.items() if n in self._actors}

    def _check_size(self, path: Path, wanted: Listing, targets: Iterable[str]) -> None:
        size = sum(int(of_file.partition(" ")[0]) for of_file in wanted.values())
        where = ", ".join(self._nodes[n].name for n in targets)
        if size > MAX_BYTES or len(wanted) > MAX_FILES:
            raise ClusterError(
                f"{path} is needed on {where}, but is too large to copy (more than "
                f"{MAX_BYTES / 1e9:g} GB or {MAX_FILES} files). Put it there under the same path, "
                "or on a shared disk, or move only the files that the job uses to a separate folder"
            )
        log.warning("copying %s (%d files, %.1f MB) to %s", path, len(wanted), size / 1e6, where)

    def mirror(
        self, folders: Mapping[Path, Sequence[str]], source: Node, to: Collection[str]
    ) -> dict[str, Path]:
        """Make files of several folders available on other nodes, below one root.

        Args:
            folders: maps absolute paths on `source`, not nested, to the names of their files.
            source: the node that has the files.
            to: ids of the nodes that need the files.

        Returns:
            Maps the id of each node that lacks some of the files under their original paths to a
            folder below which it has them all.
        """
        places = {
            folder: self.share(folder, source, keep=True, to=to, names=names)
            for folder, names in folders.items()
        }
        lacking = {n for folder, of in places.items() for n, place in of.items() if place != folder}
        roots: dict[str, Path] = self._ask(
            {
                n: self._actor(n).mirror.remote({folder: of[n] for folder, of in places.items()})
                for n in lacking
            }
        )
        return roots

    def bring(self, path: Path, source: Node, target: Node, to: Path) -> None:
        """Move the files of a folder, if it exists, into a folder on another node."""
        with self._lock:
            giver, taker = self._actor(source.id), self._actor(target.id)
            names = self._ask({"": giver.list.remote(path)})[""]
            if names is not None:
                self._ask({target.id: taker.prepare_into.remote(to)})
                self._send(path, names, giver, {target.id: taker})
                self._ask({target.id: taker.finish_into.remote()})
                self.remove({source.id: path})

    def remove(self, copies: Mapping[str, Path]) -> None:
        """Remove a file or folder on each node."""
        with self._lock:
            living = {n: path for n, path in copies.items() if n in self._nodes}
            self._ask({n: self._actor(n).remove.remote(path) for n, path in living.items()})

    def without(self, path: Path, source: Node) -> set[str]:
        """Return the ids of the nodes that lack this file or folder of `source`."""
        with self._lock:
            listings = self._list(path, self._nodes)
        return {n for n, listing in listings.items() if listing != listings[source.id]}

    def _list(
        self, path: Path, nodes: Iterable[str], names: Sequence[str] | None = None
    ) -> dict[str, Listing | None]:
        """List the files that each node has under a path."""
        found: dict[str, Listing | None] = self._ask(
            {n: self._actor(n).list.remote(path, names) for n in nodes}
        )
        return found

    def _send(self, path: Path, names: Iterable[str], source: Any, targets: dict[str, Any]) -> None:
        """Send all files, reading the next chunk while the previous chunk is written."""
        writing: dict[str, Any] = {}
        for name in names:
            offset, size = 0, None
            while size is None or offset < size:
                chunk, length = source.read.options(num_returns=2).remote(path / name, offset)
                size = self._ask({"": length})[""]
                self._ask(writing)
                living = {n: a for n, a in targets.items() if n in self._actors}
                writing = {n: a.write.remote(name, chunk) for n, a in living.items()}
                offset += _CHUNK
        self._ask(writing)

    def _actor(self, node_id: str) -> Any:
        """Return a node's actor, starting it when it is first needed."""
        import ray

        if node_id not in self._actors:
            options = on_node(node_id)
            remote = ray.remote(FilesOfNode).options(**options)
            self._actors[node_id] = remote.remote(self._weight_folders.get(node_id))
        return self._actors[node_id]

    def _ask(self, calls: dict[str, Any]) -> dict[str, Any]:
        """Return the results of calls by node id; drop nodes whose actor has died."""
        import ray
        import ray.exceptions

        results: dict[str, Any] = {}
        for node_id, call in calls.items():
            try:
                results[node_id] = ray.get(call, timeout=self._deadline_s)
            except ray.exceptions.RayTaskError as error:
                raise ClusterError(f"the job's files could not be copied: {error.cause}") from error
            except ray.exceptions.GetTimeoutError as error:
                raise ClusterError(
                    f"the job's files were not copied to all nodes within {self._deadline_s:g} s"
                ) from error
            except ray.exceptions.RayError as error:  # the actor or its node has died
                if node_id not in self._nodes:
                    raise ClusterError(f"the job's files could not be copied: {error}") from error
                node = self._nodes.pop(node_id)
                self._actors.pop(node_id, None)
                log.warning(
                    "node %s no longer receives the job's files: %s",
                    node.name, short_reason(error),
                )  # fmt: skip
        return results

    def close(self) -> None:
        """Remove copies that are not kept and end the actors; may be called twice."""
        import ray

        actors, self._actors = self._actors, {}
        closing = [actor.close.remote() for actor in actors.values()]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=min(10.0, self._deadline_s))
        for actor in actors.values():
            ray.kill(actor)


class FilesOfNode:
    """Reads and writes files of its node; keeps new weights in `weights`, else in shared memory."""

    def __init__(self, weights: Path | None = None) -> None:
        self._weights = weights
        self._folder: Path | None = None
        self._owned: set[Path] = set()
        self._partial = self._target = Path()
        self._names: Sequence[str] = ()
        self._digests = FileDigests(kept_folder() / "digests.json")

    def list(self, path: Path, names: Sequence[str] | None = None) -> Listing | None:
        """Return size and digest of a file, or of files in a folder; None if any is missing."""
        if path.is_file():
            return self._digests.of({".": path})
        if not path.is_dir():
            return None
        if names is None:
            files = sorted(file for file in path.rglob("*") if file.is_file())
        else:
            files = [path / name for name in names]
            if not all(file.is_file() for file in files):
                return None
        return self._digests.of({str(file.relative_to(path)): file for file in files})

    def read(self, path: Path, offset: int) -> tuple[bytes, int]:
        """Read a chunk of a file; return it with the file's size."""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK), os.fstat(file.fileno()).st_size

    def own(self, path: Path) -> None:
        """Remove earlier versions of a path written here, and register its folder for removal."""
        self._owned.add(path.parent)
        _remove_earlier(path)

    def prepare(
        self, name: str, wanted: Listing, keep: bool, exact: bool = False
    ) -> tuple[Path, bool]:
        """Make room for a copy; return its path and whether it already exists.

        Args:
            name: name of the file or folder.
            wanted: listing of the source, as returned by `list`.
            keep: see `NodeFiles.share`.
            exact: whether `list` was given names.
        """
        if keep:
            digest = xxhash.xxh3_64_hexdigest(repr(sorted(wanted.items())).encode())
            self._target = kept_folder() / digest / name
        else:
            self._target = self._memory() / name
            _remove_earlier(self._target)
        # Code that was copied may have written other files next to itself.
        if self.list(self._target, [*wanted] if exact else None) == wanted:
            return self._target, True
        self._partial = self._target.with_name(f".{name}.{os.getpid()}.partial")
        _remove(self._partial)
        self._target.parent.mkdir(parents=True, exist_ok=True)
        return self._target, False

    def write(self, name: str, data: bytes) -> None:
        """Append a chunk to a file of the copy."""
        # `name` comes from another node, so reject path traversal.
        file = self._partial / name
        if not file.resolve().is_relative_to(self._partial.resolve()):
            raise ValueError(f"{name!r} is outside the folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(data)

    def finish(self) -> None:
        """Give the complete copy its final name."""
        _remove(self._target)
        self._partial.rename(self._target)

    def prepare_into(self, folder: Path) -> None:
        """Make room for files that will be added to a folder."""
        self._target = folder
        self._partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        _remove(self._partial)
        self._partial.mkdir(parents=True)

    def finish_into(self) -> None:
        """Add the complete files to the folder."""
        self._target.mkdir(parents=True, exist_ok=True)
        for file in sorted(self._partial.rglob("*")):
            place = self._target / file.relative_to(self._partial)
            if file.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)
        _remove(self._partial)

    def mirror(self, places: Mapping[Path, Path]) -> Path:
        """Create a folder that links other folders under their original paths."""
        root = Path(tempfile.mkdtemp(prefix="agentrl-files-"))
        self._owned.add(root)
        for folder, place in places.items():
            link = Path(root, *folder.parts[1:])
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)
        return root

    def remove(self, path: Path) -> None:
        """Remove a file or folder, if it exists."""
        _remove(path)

    def _memory(self) -> Path:
        """Return a folder in shared memory or, without any, for temporary files."""
        if self._folder is None:
            memory = Path("/dev/shm")
            root = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
            root = self._weights or root
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_MEMORY}{os.getpid()}-", dir=root))
            self._owned.add(self._folder)
        return self._folder

    def close(self) -> None:
        """Remove all files made for this job."""
        for folder in self._owned:
            shutil.rmtree(folder, ignore_errors=True)


class FileDigests:
    """Digests of whole files, remembered for later jobs while the files are unchanged.

    Any write changes a file's ctime, even if its mtime is restored.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._known: dict[str, list[Any]] = {}
        if store.is_file():
            try:
                self._known = json.loads(store.read_text())
            except ValueError:
                log.warning("%s is damaged, so files are read again", store)

    def of(self, files: Mapping[str, Path]) -> Listing:
        """Return the size and digest of each file, under the same keys."""
        before = dict(self._known)
        found = {key: self._size_and_digest(file) for key, file in files.items()}
        # Drop files that are gone, or the store would only grow.
        if self._known != before:
            self._known = {path: own for path, own in self._known.items() if Path(path).exists()}
            with atomic_replace(self._store) as partial:
                partial.write_text(json.dumps(self._known))
        return found

    def _size_and_digest(self, file: Path) -> str:
        path = str(file.resolve())
        with file.open("rb") as opened:
            state = _state(opened.fileno())
            if self._known.get(path, [])[:-1] == state:
                return f"{state[0]} {self._known[path][-1]}"
            digest = hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
            # Otherwise, a write within the clock's resolution or during reading would go unnoticed.
            is_settled = time.time_ns() - max(state[1:3]) > _SETTLED_S * 1e9
            if state[0] >= _SMALL and is_settled and _state(opened.fileno()) == state:
                self._known[path] = [*state, digest]
        return f"{state[0]} {digest}"


def _state(file: int) -> list[int]:
    """Return a file's size, times, device and inode, which change when it is written."""
    found = os.fstat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino]


def kept_folder() -> Path:
    """Return the folder, among temporary files, for copies that outlive jobs."""
    folder = Path(tempfile.gettempdir()) / f"agentrl-models-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to a different user")
    return folder


def _without_weights(listing: Listing | None) -> Listing | None:
    if listing is None:
        return None
    return {n: mark for n, mark in listing.items() if not n.endswith((".safetensors", ".bin"))}


def _remove_earlier(path: Path) -> None:
    """Remove siblings of a path whose names differ only in the number."""
    for other in path.parent.glob(f"{path.name.partition('-')[0]}-*"):
        if other != path:
            _remove(other)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

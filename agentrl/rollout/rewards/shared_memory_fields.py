"""Send the large fields of episodes to another process through shared memory."""

import itertools
import mmap
import os
import pickle
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np

from agentrl.errors import RewardError
from agentrl.rollout.rewards.lazy_episode_transfer import Contents, contents_of
from agentrl.types import Episode

_Packed = tuple[int, list[int], bytes]
"""Index of a memory block, the sizes of the buffers in it, and the pickled object they are from."""


class FieldSender:
    """Sends fields that a `FieldReceiver` requests.

    Memory blocks are reused once no array in the other process refers to them, because writing to
    new memory would take three times as long. They are anonymous, so they end with the two
    processes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._memories: list[_Memory] = []
        self._free: list[int] = []
        self._known = 0
        """Number of memory blocks that the receiver has."""
        self._ahead: tuple[int, _Packed | None] = (0, None)

    def answer(self, find: Callable[[int], Episode | None]) -> int:
        """Answer one request, which must have arrived.

        Args:
            find: returns a job's episode, or None if the job is no longer being scored.

        Returns:
            The id of the job.
        """
        id, free = self._connection.recv()
        self._free += free
        packed = self._take(id)
        if packed is None and (episode := find(id)) is not None:
            packed = self._pack(episode)
        self._connection.send(packed)
        if packed is not None and packed[0] == self._known:
            send_handle(self._connection, self._memories[packed[0]].fd, 0)
            self._known += 1
        return int(id)

    def prepare(self, id: int, episode: Episode) -> None:
        """Copy the fields of the job expected to be requested next."""
        self._ahead = id, self._pack(episode)

    def _take(self, id: int) -> _Packed | None:
        """Return the prepared fields if they are for this job."""
        (ahead, packed), self._ahead = self._ahead, (0, None)
        if packed is not None and ahead != id:
            self._free.append(packed[0])
            return None
        return packed

    def _pack(self, episode: Episode) -> _Packed:
        buffers: list[pickle.PickleBuffer] = []
        content = pickle.dumps(contents_of(episode), protocol=5, buffer_callback=buffers.append)
        if not self._free:
            self._free.append(len(self._memories))
            self._memories.append(_Memory(os.memfd_create("fields")))
        number, sizes = self._free.pop(), [buffer.raw().nbytes for buffer in buffers]
        parts = self._memories[number].arrays(sizes)
        for part, buffer in zip(parts, buffers, strict=True):
            # Unlike assigning a slice of bytes, numpy copies without holding the GIL.
            part[:] = np.frombuffer(buffer.raw(), np.uint8)
        return number, sizes, content

    def close(self) -> None:
        """Close the memory blocks; arrays in the other process stay valid."""
        while self._memories:
            os.close(self._memories.pop().fd)


class FieldReceiver:
    """Requests and receives fields of episodes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._memories: list[_Memory] = []
        self._free: list[int] = []
        """Memory blocks that no array refers to, for reuse."""

    def fetch(self, id: int) -> Contents:
        """Return the fields of a job's episode, with read-only arrays."""
        free = [self._free.pop() for _ in range(len(self._free))]
        self._connection.send((id, free))
        packed: _Packed | None = self._connection.recv()
        if packed is None:
            raise RewardError("an episode must be read before the function returns")
        number, sizes, content = packed
        if number == len(self._memories):
            self._memories.append(_Memory(recv_handle(self._connection)))
        buffers = self._memories[number].arrays(sizes, on_free=lambda: self._free.append(number))
        found: Contents = pickle.loads(content, buffers=buffers)
        return found


class _Memory:
    """One process's mapping of a memory block that both processes share."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(-1, 1)

    def arrays(
        self, sizes: Sequence[int], *, on_free: Callable[[], object] | None = None
    ) -> "list[np.ndarray[Any, Any]]":
        """Return consecutive parts of the memory as byte arrays.

        Args:
            sizes: sizes of the parts in bytes.
            on_free: for a reader, whose arrays are read-only; called when nothing refers to any of
                the arrays.
        """
        total = max(1, sum(sizes))
        # Arrays of earlier episodes keep the old, smaller mapping alive.
        if len(self._map) < total:
            if on_free is None:
                os.truncate(self.fd, total)
            access = mmap.ACCESS_READ if on_free else mmap.ACCESS_WRITE
            self._map = mmap.mmap(self.fd, total, access=access)
        whole = np.frombuffer(self._map, np.uint8)
        if on_free is not None:
            weakref.finalize(whole, on_free).atexit = False
        ends = [0, *itertools.accumulate(sizes)]
        return [whole[start:end] for start, end in itertools.pairwise(ends)]

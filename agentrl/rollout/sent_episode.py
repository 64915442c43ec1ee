"""An episode on its way to another process: what few reward functions read is fetched on demand.

50 screens are 138 MB, and the ids of 50 prompts take longer to send than all texts of the episode.
"""

import dataclasses
import io
import itertools
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentrl.types import Episode, Turn

_FIELDS = ("images", "prompt_ids", "reply_logprobs", "reply_versions", "reply_top_logprobs")
"""The fields of a turn that are fetched on demand."""
Contents = Sequence[Sequence[Any]]
"""For each turn the values of `_FIELDS`, and after them the images after the last turn."""


class EpisodeSource:
    """The fields of one episode that were not sent; they are fetched all at once.

    Args:
        fetch: returns them.
    """

    __slots__ = ("_contents", "_fetch")

    def __init__(self, fetch: Callable[[], Contents]) -> None:
        self._fetch = fetch
        self._contents: Contents | None = None

    def get(self, turn: int, field: int) -> Sequence[Any]:
        """The values of a field of a turn; turn -1 has the images after the last turn."""
        if self._contents is None:
            self._contents = self._fetch()
        found: Sequence[Any] = self._contents[turn][field]
        return found


class Fetched(Sequence[Any]):
    """A tuple of a turn that is fetched when one of its items is read.

    Args:
        source: of the episode.
        turn: of the episode, -1 for the images after the last turn.
        field: index in `_FIELDS`.
        places: the indices of its items in that field.
    """

    __slots__ = ("_field", "_places", "_source", "_turn")

    def __init__(self, source: EpisodeSource, turn: int, field: int, places: range) -> None:
        self._source, self._turn, self._field, self._places = source, turn, field, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        places = self._places[index]
        if isinstance(places, range):
            return Fetched(self._source, self._turn, self._field, places)
        return self._source.get(self._turn, self._field)[places]

    def __iter__(self) -> Iterator[Any]:
        items = self._source.get(self._turn, self._field)
        return (items[place] for place in self._places)

    def __add__(self, other: Any) -> tuple[Any, ...]:
        return (*self, *other)

    def __radd__(self, other: Any) -> tuple[Any, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | Fetched) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class FirstItem:
    """The first item of a `Fetched`, for a place that holds the item itself.

    Args:
        items: at least one.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Fetched) -> None:
        self._items = items

    def load(self) -> Any:
        """The item."""
        return self._items[0]


class Joined(Sequence[Any]):
    """Several sequences as one, without reading them.

    Args:
        parts: the sequences.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._parts)


def pickled(value: Any) -> bytes:
    """An object as bytes; an episode without the fields that are fetched.

    Raises:
        Exception: it has a part that another process cannot be given.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Replaces fields that are fetched by their lengths."""

    def reducer_override(self, obj: Any) -> Any:
        """See pickle."""
        kind = type(obj)
        if kind is Turn:
            values = [*_TURN.get(obj)]
            for place in _PLACES:
                values[place] = len(values[place])
            return _make_turn, (values,)
        if kind is Episode:
            values = [*_EPISODE.get(obj)]
            values[_FINAL] = len(values[_FINAL])
            return _make_episode, (values,)
        if (obj if kind is type else kind).__module__ == "__main__":
            raise pickle.PicklingError(
                f"{kind.__qualname__} is defined in the main script; move it to a module"
            )
        return NotImplemented


def contents_of(episode: Episode) -> Contents:
    """What `EpisodeSource` fetches."""
    turns = [[getattr(turn, name) for name in _FIELDS] for turn in episode.turns]
    return [*turns, [episode.final_images]]


def unpickled(content: bytes, fetch: Callable[[], Contents]) -> Any:
    """What was pickled; an episode fetches the other fields when they are read.

    Args:
        content: see `pickled`.
        fetch: see `EpisodeSource`.
    """
    value = pickle.loads(content)
    if isinstance(value, Episode):
        source = EpisodeSource(fetch)
        for number, turn in enumerate(value.turns):
            for field, (name, put) in enumerate(_PUT):
                _put_fetched(turn, name, put, source, number, field)
        _put_fetched(value, "final_images", _EPISODE.put[_FINAL], source, -1, 0)
    return value


def _put_fetched(
    owner: Episode | Turn,
    name: str,
    put: Callable[[Any, Any], None],
    source: EpisodeSource,
    turn: int,
    field: int,
) -> None:
    """Put a sequence into a field that has its length."""
    count: Any = getattr(owner, name)
    if isinstance(count, int):  # an episode may have the same turn twice
        put(owner, Fetched(source, turn, field, range(count)) if count else ())


class _Fields:
    """Reads and writes all fields of a frozen dataclass with slots, faster than its own methods."""

    def __init__(self, kind: type) -> None:
        self.names = [field.name for field in dataclasses.fields(kind)]
        self.get = operator.attrgetter(*self.names)
        self.put = [getattr(kind, name).__set__ for name in self.names]


_TURN, _EPISODE = _Fields(Turn), _Fields(Episode)
_PLACES = [_TURN.names.index(name) for name in _FIELDS]
_PUT = [(name, _TURN.put[place]) for name, place in zip(_FIELDS, _PLACES, strict=True)]
_FINAL = _EPISODE.names.index("final_images")


def _make_turn(values: Sequence[Any]) -> Turn:
    turn = Turn.__new__(Turn)
    for put, value in zip(_TURN.put, values, strict=True):
        put(turn, value)
    return turn


def _make_episode(values: Sequence[Any]) -> Episode:
    episode = Episode.__new__(Episode)
    for put, value in zip(_EPISODE.put, values, strict=True):
        put(episode, value)
    return episode

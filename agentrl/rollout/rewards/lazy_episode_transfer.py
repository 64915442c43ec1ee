"""Send episodes to another process, except fields that few functions read: fetch them on demand.

50 screens are 138 MB, and the ids of 50 prompts take longer to send than all text of the episode.
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
"""Fields of a turn that are fetched on demand."""
Contents = Sequence[Sequence[Any]]
"""Each turn's values of `_FIELDS`, followed by the images after the last turn."""


class EpisodeSource:
    """An episode's fields that were not sent; the first read fetches all of them."""

    __slots__ = ("_contents", "_fetch")

    def __init__(self, fetch: Callable[[], Contents]) -> None:
        self._fetch = fetch
        self._contents: Contents | None = None

    def get(self, turn: int, field: int) -> Sequence[Any]:
        """Return the values of a turn's field; turn -1 has the images after the last turn."""
        if self._contents is None:
            self._contents = self._fetch()
        found: Sequence[Any] = self._contents[turn][field]
        return found


class Fetched(Sequence[Any]):
    """A turn's tuple, fetched when one of its items is read.

    Args:
        source: the episode's source.
        turn: index of the turn, -1 for the images after the last turn.
        field: index in `_FIELDS`.
        places: the indices of this tuple's items in that field.
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

    def __reduce__(self) -> Any:
        # A function may send the tuple to its child processes, which cannot fetch.
        return tuple, ([*self],)


class FirstItem:
    """The first item of a `Fetched`, for a field that holds a single item."""

    __slots__ = ("_items",)

    def __init__(self, items: Fetched) -> None:
        self._items = items

    def load(self) -> Any:
        """Return the item."""
        return self._items[0]


class Joined(Sequence[Any]):
    """Concatenation of sequences that does not read them in advance."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._parts)

    def __reduce__(self) -> Any:
        return list, ([*self],)


def pickled(value: Any) -> bytes:
    """Pickle an object; an episode without the fields that are fetched on demand.

    Raises:
        Exception: a part of the object cannot be sent to another process.
    """
    if isinstance(value, Episode):
        value = _bare(value)
    content = pickle.dumps(value, protocol=5)
    # The name may only occur in a string.
    if b"__main__" in content:
        _ImportablePickler(io.BytesIO(), protocol=5).dump(value)
    return content


def _bare(episode: Episode) -> tuple[Any, ...]:
    """Return the values of an episode's fields, with only lengths for fields fetched on demand.

    Turns are sent field by field, which is faster than a tuple per turn.
    """
    turns = episode.turns
    lengths = [[*map(len, items)] for items in zip(*map(_get_fetched, turns), strict=True)]
    columns = [*zip(*map(_get_sent, turns), strict=True)]
    return (len(turns), columns, lengths, len(episode.final_images), _get_others(episode))


class _ImportablePickler(pickle.Pickler):
    """Pickler that rejects objects that another process cannot import."""

    def reducer_override(self, obj: Any) -> Any:
        """See pickle."""
        kind = obj if isinstance(obj, type) else type(obj)
        if kind.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{kind.__qualname__} is defined in the main script; move it to a module"
            )
        return NotImplemented


def contents_of(episode: Episode) -> Contents:
    """Return the contents that `EpisodeSource` fetches."""
    return [*map(_get_fetched, episode.turns), [episode.final_images]]


def unpickled(content: bytes, fetch: Callable[[], Contents]) -> Any:
    """Unpickle an object; an episode fetches its other fields when they are read."""
    value = pickle.loads(content)
    if not isinstance(value, tuple):
        return value
    (count, columns, lengths, finals, others), source = value, EpisodeSource(fetch)
    turns = [object.__new__(_SentTurn) for _ in range(count)]
    for number, turn in enumerate(turns):
        _put_sent(turn, (source, number, columns, lengths))
    return Episode(
        turns=tuple(turns),
        final_images=Fetched(source, -1, 0, range(finals)) if finals else (),  # type: ignore[arg-type]
        **dict(zip(_OTHERS, others, strict=True)),
    )


class _SentTurn(Turn):
    """A turn whose fields are set on first read, as many functions read only the last turn."""

    __slots__ = ("_sent",)

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            (source, number, _, lengths), field = self._sent, _FIELDS.index(name)
            items = Fetched(source, number, field, range(lengths[field][number]))
            object.__setattr__(self, name, items if items else ())
        elif name in _PUT:
            _, number, columns, _ = self._sent
            for put, column in zip(_PUT.values(), columns, strict=True):
                put(self, column[number])
        else:
            text = f"'Turn' object has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=self)
        return getattr(self, name)


_SENT = [field.name for field in dataclasses.fields(Turn) if field.name not in _FIELDS]
_OTHERS = [
    field.name
    for field in dataclasses.fields(Episode)
    if field.name not in ("turns", "final_images")
]
_get_sent, _get_fetched = operator.attrgetter(*_SENT), operator.attrgetter(*_FIELDS)
_get_others = operator.attrgetter(*_OTHERS)
_PUT = {name: getattr(Turn, name).__set__ for name in _SENT}
"""Setters of a frozen turn's fields, which are faster than its constructor."""
_put_sent = vars(_SentTurn)["_sent"].__set__

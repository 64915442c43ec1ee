"""A room: walls, floor and targets, and what follows from them alone.

Sets of cells are whole numbers: bit `row * width + column` stands for a cell. A search then asks
about all cells at once with a few shifts. Around the floor stand walls, so that no shift carries a
cell of the floor from one row into the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


# No slots: what is derived from a room is kept in it.
@dataclass(kw_only=True, frozen=True)
class Room:
    """What never changes in a level."""

    height: int
    """Rows, walls included."""
    width: int
    """Columns, walls included."""
    floor: int
    """Cells that the player could reach if there were no boxes."""
    targets: int
    outside: int = 0
    """Cells that are drawn as floor and that nobody can reach; all others are walls."""

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """How far a move takes a cell's number: up, down, left, right."""
        return (-self.width, self.width, -1, 1)

    @cached_property
    def plan(self) -> bytes:
        """The room without boxes and player, as text; every row ends with a line break."""
        cells = bytearray(b"#" * (self.height * self.width))
        for mark, mask in ((b" ", self.floor | self.outside), (b".", self.targets)):
            for cell in bits(mask):
                cells[cell : cell + 1] = mark
        rows = range(0, len(cells), self.width)
        return b"".join(bytes(cells[row : row + self.width]) + b"\n" for row in rows)

    @cached_property
    def distances(self) -> tuple[dict[int, int], ...]:
        """For each target, and each cell: the least pushes that take a box there, alone."""
        return tuple(self._distances(target) for target in bits(self.targets))

    @cached_property
    def dead(self) -> int:
        """The floor from which a box cannot be pushed to any target, even alone in the room."""
        alive = {cell for found in self.distances for cell in found}
        return self.floor & ~sum(1 << cell for cell in alive)

    def reach(self, player: int, boxes: int) -> int:
        """The cells where the player can walk without a push."""
        free, width = self.floor & ~boxes, self.width
        reached = edge = 1 << player
        while edge:
            edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free & ~reached
            reached |= edge
        return reached

    def _distances(self, target: int) -> dict[int, int]:
        found, edge = {target: 0}, [target]
        while edge:
            following = []
            for cell in edge:
                for step in self.steps:
                    source, player = cell - step, cell - 2 * step
                    can = self.floor >> source & 1 and self.floor >> player & 1
                    if can and source not in found:
                        found[source] = found[cell] + 1
                        following.append(source)
            edge = following
        return found


def bits(mask: int) -> Iterator[int]:
    """The cells of a set, in rising order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def moved(mask: int, step: int) -> int:
    """All cells of a set, moved by a step."""
    return mask << step if step > 0 else mask >> -step

"""A room: walls, floor and targets, and properties that depend only on them.

Sets of cells are integer bit masks with bit `row * width + column` for each cell, so a search can
process all cells with a few shifts. Walls enclose the floor, so no shift carries a floor cell from
one row into the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


# No slots: cached properties need a __dict__.
@dataclass(kw_only=True, frozen=True)
class Room:
    """The constant part of a level."""

    height: int
    """Rows including walls."""
    width: int
    """Columns including walls."""
    floor: int
    """Cells that the player could reach if there were no boxes."""
    targets: int
    outside: int = 0
    """Unreachable cells that are drawn as floor; all remaining cells are walls."""

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """Offsets of a cell's index for a move up, down, left and right."""
        return (-self.width, self.width, -1, 1)

    @cached_property
    def plan(self) -> bytes:
        """The room as text, without boxes and player; every row ends with a line break."""
        cells = bytearray(b"#" * (self.height * self.width))
        for mark, mask in ((b" ", self.floor | self.outside), (b".", self.targets)):
            for cell in bits(mask):
                cells[cell : cell + 1] = mark
        rows = range(0, len(cells), self.width)
        return b"".join(bytes(cells[row : row + self.width]) + b"\n" for row in rows)

    @cached_property
    def distances(self) -> tuple[dict[int, int], ...]:
        """Minimum number of pushes from each cell to each target, ignoring other boxes."""
        return tuple(self._distances(target) for target in bits(self.targets))

    @cached_property
    def dead(self) -> int:
        """Floor cells from which a box cannot reach any target, even without other boxes."""
        alive = {cell for distances in self.distances for cell in distances}
        return self.floor & ~sum(1 << cell for cell in alive)

    def reach(self, player: int, boxes: int) -> int:
        """Return the cells that the player can reach without pushing."""
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
    """Yield the cells of a set in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def moved(mask: int, step: int) -> int:
    """Return the cells of a set, shifted by a step."""
    return mask << step if step > 0 else mask >> -step

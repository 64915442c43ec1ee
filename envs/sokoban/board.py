"""The rules: the boxes and the player in a room, and what a move does."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.envs.sokoban.room import Room, bits
from agentrl.errors import ConfigError

MOVES = ("up", "down", "left", "right")
CHARACTERS = "# .$@*+"
"""Wall, floor, target, box, player, box on a target, player on a target."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Board:
    """A room with its boxes and its player."""

    room: Room
    boxes: int
    player: int
    """The cell's number."""

    @property
    def solved(self) -> bool:
        """Whether every box is on a target."""
        return self.boxes == self.room.targets

    @property
    def on_target(self) -> int:
        """How many boxes are on a target."""
        return (self.boxes & self.room.targets).bit_count()

    @property
    def num_boxes(self) -> int:
        """As many as there are targets."""
        return self.boxes.bit_count()

    def move(self, direction: int) -> "Board":
        """The board after a move; itself where a wall or a second box is in the way.

        Args:
            direction: index of `MOVES`.
        """
        step = self.room.steps[direction]
        to, boxes = self.player + step, self.boxes
        if not self.room.floor >> to & 1:
            return self
        if boxes >> to & 1:
            beyond = to + step
            if not (self.room.floor & ~boxes) >> beyond & 1:
                return self
            boxes ^= 1 << to | 1 << beyond
        return Board(room=self.room, boxes=boxes, player=to)

    def text(self) -> str:
        """Rows of `CHARACTERS`, joined by line breaks."""
        width, targets = self.room.width, self.room.targets
        cells = bytearray(self.room.plan)
        for cell in bits(self.boxes):
            cells[cell + cell // width] = 42 if targets >> cell & 1 else 36  # * and $
        player = self.player
        cells[player + player // width] = 43 if targets >> player & 1 else 64  # + and @
        return cells[:-1].decode("ascii")


def parse(text: str, where: str = "level", first_line: int = 1) -> Board:
    """Read a board.

    Args:
        text: rows of `CHARACTERS`; short rows are filled with floor, as rows lose their last
            blanks in many files.
        where: what errors name.
        first_line: the number of the first row in errors.

    Raises:
        ConfigError: a character that means nothing, not one player, not as many boxes as targets,
            none at all, one that cannot be reached, or a room that is open to the outside.
    """
    rows = text.split("\n")
    width = max(len(row) for row in rows)
    for number, row in enumerate(rows, first_line):
        for column, character in enumerate(row, 1):
            if character not in CHARACTERS:
                raise ConfigError(
                    f"{where}, line {number}, column {column}: {character!r} is none of "
                    f"{' '.join(map(repr, CHARACTERS))}"
                )
    cells = "".join(row.ljust(width) for row in rows)
    masks = {kind: _mask(cells, kind) for kind in ("@+", "$*", ".*+", "#")}
    players, boxes, targets, walls = masks.values()
    if players.bit_count() != 1:
        raise ConfigError(f"{where}: {players.bit_count()} players (@ or +); one must be there")
    if boxes.bit_count() != targets.bit_count() or not boxes:
        raise ConfigError(
            f"{where}: {boxes.bit_count()} boxes ($ or *) and {targets.bit_count()} targets "
            "(. * or +); there must be as many of both, and one at least"
        )
    floor = _enclosed(rows, width, walls, players, where, first_line)
    for name, mask in (("box", boxes), ("target", targets)):
        if lost := mask & ~floor:
            row, column = divmod(next(bits(lost)), width)
            raise ConfigError(
                f"{where}, line {first_line + row}, column {column + 1}: a {name} where the player "
                "can never come"
            )
    everywhere = (1 << len(cells)) - 1
    room = Room(
        height=len(rows),
        width=width,
        floor=floor,
        targets=targets,
        outside=everywhere & ~walls & ~floor,
    )
    return Board(room=room, boxes=boxes, player=players.bit_length() - 1)


def _mask(cells: str, characters: str) -> int:
    return sum(1 << cell for cell, character in enumerate(cells) if character in characters)


def _enclosed(
    rows: Sequence[str], width: int, walls: int, player: int, where: str, first_line: int
) -> int:
    """The cells that the player could reach without boxes; none may lie at the edge.

    Raises:
        ConfigError: one does: whoever walks there would leave the level.
    """
    height, reached, edge = len(rows), 0, player
    row = (1 << width) - 1
    border = row | row << width * (height - 1)
    border |= sum((1 | 1 << width - 1) << width * line for line in range(height))
    while edge:
        reached |= edge
        if gap := reached & border:
            line, column = divmod(next(bits(gap)), width)
            raise ConfigError(
                f"{where}, line {first_line + line}, column {column + 1}: the player can leave the "
                "level here; walls (#) must stand around it"
            )
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & ~walls & ~reached
    return reached

"""Parse boards from text; errors name line and column."""

from dataclasses import dataclass

from agentrl.envs.sokoban.board import CHARACTERS, Board
from agentrl.envs.sokoban.room import Room, bits
from agentrl.errors import ConfigError


def parse(text: str, where: str = "level", first_line: int = 1) -> Board:
    """Parse rows of `CHARACTERS`, padding short rows, since many files lack trailing spaces.

    Raises:
        ConfigError: an unknown character, not exactly one player, no boxes or targets, different
            numbers of both, an unreachable box or target, or a room not enclosed by walls. The
            message names the source and the line, counted from `first_line`.
    """
    return _Text(rows=text.split("\n"), where=where, first_line=first_line).board()


@dataclass(slots=True, kw_only=True)
class _Text:
    rows: list[str]
    where: str
    first_line: int

    @property
    def width(self) -> int:
        return max(map(len, self.rows))

    def board(self) -> Board:
        self._check_characters()
        player, boxes, targets = (self._cells(kind) for kind in ("@+", "$*", ".*+"))
        self._check_counts(player, boxes, targets)
        walls = self._cells("#")
        floor = self._enclosed(walls, player)
        for name, cells in (("box", boxes), ("target", targets)):
            if lost := cells & ~floor:
                raise ConfigError(f"{self._place(lost)}: the player can never reach this {name}")
        everywhere = (1 << self.width * len(self.rows)) - 1
        room = Room(
            height=len(self.rows),
            width=self.width,
            floor=floor,
            targets=targets,
            outside=everywhere & ~walls & ~floor,
        )
        return Board(room=room, boxes=boxes, player=player.bit_length() - 1)

    def _check_characters(self) -> None:
        for number, row in enumerate(self.rows, self.first_line):
            for column, character in enumerate(row, 1):
                if character not in CHARACTERS:
                    raise ConfigError(
                        f"{self.where}, line {number}, column {column}: {character!r} is not one "
                        f"of {' '.join(map(repr, CHARACTERS))}"
                    )

    def _check_counts(self, player: int, boxes: int, targets: int) -> None:
        players, num_boxes, num_targets = map(int.bit_count, (player, boxes, targets))
        level = f"{self.where}, line {self.first_line}"
        if players != 1:
            raise ConfigError(f"{level}: {players} players (@ or +); there must be exactly one")
        if num_boxes != num_targets or not num_boxes:
            raise ConfigError(
                f"{level}: {num_boxes} boxes ($ or *) and {num_targets} targets (. * or +); their "
                "numbers must be equal and at least 1"
            )

    def _cells(self, characters: str) -> int:
        """Return the cells that contain one of these characters."""
        cells = "".join(row.ljust(self.width) for row in self.rows)
        return sum(1 << cell for cell, character in enumerate(cells) if character in characters)

    def _enclosed(self, walls: int, player: int) -> int:
        """Return the cells that the player could reach if there were no boxes."""
        width, border = self.width, self._border()
        reached, edge = 0, player
        while edge:
            reached |= edge
            if gap := reached & border:
                raise ConfigError(
                    f"{self._place(gap)}: the player can leave the level here; enclose it with "
                    "walls (#)"
                )
            edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & ~walls & ~reached
        return reached

    def _border(self) -> int:
        width, height = self.width, len(self.rows)
        row, sides = (1 << width) - 1, 1 | 1 << width - 1
        return row | row << width * (height - 1) | sum(sides << width * y for y in range(height))

    def _place(self, cells: int) -> str:
        """Return the line and column of the first of these cells, for error messages."""
        line, column = divmod(next(bits(cells)), self.width)
        return f"{self.where}, line {self.first_line + line}, column {column + 1}"

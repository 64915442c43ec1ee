"""The rules of Sokoban: boxes and player in a room, and the effect of a move."""

from dataclasses import dataclass

from agentrl.envs.sokoban.room import Room, bits

MOVES = ("up", "down", "left", "right")
CHARACTERS = "# .$@*+"
"""Wall, floor, target, box, player, box on a target, player on a target."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Board:
    """A room with boxes and the player."""

    room: Room
    boxes: int
    player: int
    """Index of the player's cell."""

    @property
    def solved(self) -> bool:
        """Whether every box is on a target."""
        return self.boxes == self.room.targets

    @property
    def on_target(self) -> int:
        """Number of boxes on a target."""
        return (self.boxes & self.room.targets).bit_count()

    @property
    def num_boxes(self) -> int:
        """Number of boxes, equal to the number of targets."""
        return self.boxes.bit_count()

    def move(self, direction: int) -> "Board":
        """Return the board after a move of `MOVES`; `self` if a wall or a second box blocks it."""
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
        """Return rows of `CHARACTERS`, joined by line breaks."""
        width, targets = self.room.width, self.room.targets
        cells = bytearray(self.room.plan)
        for cell in bits(self.boxes):
            cells[cell + cell // width] = 42 if targets >> cell & 1 else 36  # * and $
        player = self.player
        cells[player + player // width] = 43 if targets >> player & 1 else 64  # + and @
        return cells[:-1].decode("ascii")

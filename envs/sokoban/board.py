"""The rules: the boxes and the player in a room, and what a move does."""

from dataclasses import dataclass

from agentrl.envs.sokoban.room import Room, bits

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

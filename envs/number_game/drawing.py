"""The picture of the number game: a pure function of its state."""

from agentrl.envs.number_game.parts import background, pieces
from agentrl.envs.number_game.rules import NumberGame
from agentrl.envs.phone_game import pieces as frame
from agentrl.envs.phone_game.pieces import Piece
from agentrl.types import Image


def render(game: NumberGame, width: int, height: int) -> Image:
    """Draw the app's area.

    Args:
        game: what to draw.
        width: in pixels.
        height: in pixels.

    Returns:
        uint8[height, width, 3]; the caller owns it.
    """
    if width > height:  # lying on its side, the parts overlap
        return draw(game, width, height)
    return frame.put_together(_ground(game), pieces(game), width, height)


def draw(game: NumberGame, width: int, height: int) -> Image:
    """The same picture as `render`'s, stroke by stroke: ten times as slow."""
    return frame.draw(_ground(game), pieces(game), width, height)


def _ground(game: NumberGame) -> Piece:
    return background, (game.level.cards,)

"""Draws the number game: a pure function of its state."""

from collections.abc import Iterator

from agentrl.envs.android.number_game import layout, palette
from agentrl.envs.android.number_game.game_state import STAKE, NumberGamePhase, NumberGameState
from agentrl.envs.android.number_game.layout import RoundLayout, round_layout
from agentrl.envs.android.number_game.levels import LAMPS
from agentrl.envs.android.phone_game import cached_drawing, paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece
from agentrl.types import Image


def render(game: NumberGameState, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3], which the caller owns."""
    if width > height:  # pieces overlap on a landscape screen
        return draw(game, width, height)
    return cached_drawing.draw_cached(_ground(game), pieces(game), width, height)


def draw(game: NumberGameState, width: int, height: int) -> Image:
    """Draw the same picture as `render`, but without cached pieces, which is ten times slower."""
    return cached_drawing.draw(_ground(game), pieces(game), width, height)


def _ground(game: NumberGameState) -> Piece:
    return background, (game.level.cards,)


_MEANING = {
    3: (("largest", 0.042), ("middle", 0.042), ("smallest", 0.042)),
    4: (("largest", 0.042), ("second largest", 0.036), ("smallest", 0.042)),
}
"""The lamps' captions and their font sizes, by the number of cards."""


def background(picture: Image, cards: int) -> None:
    """Draw the constant parts of a game: title, panels, and the lamps' captions."""
    picture[:] = palette.PAGE
    board = layout.BOARD
    paint.panel(picture, board, palette.PANEL, palette.EDGE)
    paint.text(picture, "NUMBER GAME", 0.5, board.down(0.16), 0.042, palette.QUIET)
    for column, caption in zip(_thirds(), ("score", "round", "change"), strict=True):
        paint.text(picture, caption, column, board.down(0.82), 0.036, palette.QUIET)
    for (caption, size), box in zip(_MEANING[cards], layout.LAMPS, strict=True):
        paint.panel(picture, box, palette.PANEL, palette.EDGE)
        paint.text(picture, caption, box.center[0], box.down(0.9), size, palette.QUIET)


def pieces(game: NumberGameState) -> Iterator[Piece]:
    """Return the changing pieces, top to bottom; on a portrait screen they do not overlap."""
    where = round_layout(game)
    yield from _board(game)
    yield from _lamps(game)
    yield from _words(game, where.words)
    for card, box in enumerate(where.cards):
        yield _card(game, card, box)
    yield _button(game, where)


def _board(game: NumberGameState) -> Iterator[Piece]:
    change = f"{game.change:+d}" if game.change else "-"
    values = (str(game.score), f"{game.index + 1}/{len(game.rounds)}", change)
    inks = (
        palette.INK,
        palette.INK,
        {0: palette.QUIET, STAKE: palette.RIGHT}.get(game.change, palette.WRONG),
    )
    for column, value, ink in zip(_thirds(), values, inks, strict=True):
        yield paint.text, (value, column, layout.BOARD.down(0.52), palette.VALUES, ink)


def _lamps(game: NumberGameState) -> Iterator[Piece]:
    dark = game.level.memory and game.phase is not NumberGamePhase.LAMP
    for lamp, box in zip(LAMPS, layout.LAMPS, strict=True):
        lit = lamp == game.round.lamp and not dark
        yield _draw_lamp, (box, palette.LIT[lamp] if lit else palette.UNLIT)


def _draw_lamp(picture: Image, box: Box, color: paint.Color) -> None:
    bulb = Box(box.left, box.top, box.right, box.down(0.84))
    paint.disc(picture, bulb, palette.EDGE, 0.118)
    paint.disc(picture, bulb, color, 0.11)


def _words(game: NumberGameState, box: Box) -> Iterator[Piece]:
    instruction, feedback, ink = _sentences(game)
    yield paint.text, (instruction, 0.5, box.down(0.3), 0.048, palette.INK)
    yield paint.text, (feedback, 0.5, box.down(0.68), 0.048, ink)
    if game.level.timed:
        yield _draw_clock, (box, game.time_left / game.level.timed)
    if game.tip is not None:
        yield paint.text, (game.tip, 0.5, box.down(0.93), 0.04, palette.QUIET)


def _sentences(game: NumberGameState) -> tuple[str, str, paint.Color]:
    """Return the instruction, the feedback, and the feedback's color."""
    if game.phase is NumberGamePhase.LAMP:
        return "Remember the lamp.", "Then turn the cards.", palette.QUIET
    instruction = "Pick the card that the lamp asks for."
    if game.phase is NumberGamePhase.FINAL:
        instruction = f"Final score {game.score}: {game.right} right, {game.wrong} wrong"
    elif game.level.memory:
        instruction = "Pick the card that the lamp asked for."
    if not game.over:
        return instruction, "", palette.QUIET
    answer = game.round.numbers[game.round.answer]
    if game.change > 0:
        return instruction, f"Right! It was {answer}.", palette.RIGHT
    word = "Too late." if game.picked is None else "Wrong."
    return instruction, f"{word} It was {answer}.", palette.WRONG


def _draw_clock(picture: Image, box: Box, left: float) -> None:
    """Draw a bar for the share of the round's touches that is left."""
    paint.text(picture, "time", 0.1, box.down(0.06), 0.036, palette.QUIET)
    track = Box(0.17, box.down(0.02), 0.94, box.down(0.1))
    paint.rounded(picture, track, palette.EDGE, 0.012)
    if left:
        end = track.left + left * (track.right - track.left)
        paint.rounded(picture, Box(track.left, track.top, end, track.bottom), palette.BLUE, 0.012)


def _card(game: NumberGameState, card: int, box: Box) -> Piece:
    if game.phase is NumberGamePhase.LAMP:
        return _draw_card, (box, palette.BACK, "?", 0.16, palette.PAGE)
    face, ink = palette.PANEL, palette.INK
    if game.over:
        if card == game.round.answer:
            face, ink = palette.RIGHT, palette.PANEL
        elif card == game.picked:
            face, ink = palette.WRONG, palette.PANEL
        else:
            face, ink = palette.PAGE, palette.QUIET
    size, bold = palette.FONTS[box.right - box.left < 0.25, game.level.digits]
    return _draw_card, (box, face, str(game.round.numbers[card]), size, ink, bold)


def _draw_card(
    picture: Image,
    box: Box,
    face: paint.Color,
    sign: str,
    size: float,
    ink: paint.Color,
    bold: float = 0.0,
) -> None:
    paint.panel(picture, box, face, palette.EDGE)
    paint.text(picture, sign, *box.center, size, ink, bold)


def _button(game: NumberGameState, where: RoundLayout) -> Piece:
    label, face = {
        NumberGamePhase.LAMP: ("Turn the cards", palette.BLUE),
        NumberGamePhase.PICK: ("Next round", palette.UNLIT),
        NumberGamePhase.REVEAL: ("Next round", palette.BLUE),
        NumberGamePhase.FINAL: ("Play again", palette.RIGHT),
    }[game.phase]
    return _draw_button, (where.button, label, face)


def _draw_button(picture: Image, box: Box, label: str, face: paint.Color) -> None:
    paint.rounded(picture, box, face, 0.03)
    paint.text(picture, label, *box.center, 0.062, palette.PANEL)


def _thirds() -> tuple[float, float, float]:
    """Return the centers of the three columns."""
    return (1 / 6, 1 / 2, 5 / 6)

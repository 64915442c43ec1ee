"""The turns of an episode as pictures of one size, with what was said below."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from agentrl.replay import RecordedEpisode, Run
from agentrl.replay.episode_summary import at
from agentrl.replay.touch_marks import Mark, mark_of
from agentrl.text import format_signed, printable
from agentrl.types import Image, without_placeholders

_PAPER, _INK, _FAINT, _GOOD, _BAD = "#ffffff", "#15181d", "#667085", "#0b7a4b", "#c2352b"
_TOUCH = (255, 77, 61)
_CAPTION = 98
"""Pixels below the screen."""
_MARGIN = 10
_LINES = 3
"""Of a reply, at most."""
_READ = 4_000
"""Characters of a reply that are looked at."""
_TALLEST = 8
"""Times the width; taller screens are squeezed, as films and animations take no such pictures."""


_COLUMN, _ROW = 10, 18
"""Pixels of a sign of what was shown in words."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Shot:
    """What one picture shows."""

    frame: str | None
    words: str
    mark: Mark | None
    title: str
    said: str
    reward: float | None


def shots(recorded: RecordedEpisode) -> list[Shot]:
    """One for each turn, and one for the end."""
    episode, summary = recorded.episode, recorded.summary
    found = [
        Shot(
            frame=turn.frames[-1] if turn.frames else None,
            words=_plain(turn.shown),
            mark=mark_of(turn),
            title=f"turn {number} of {len(episode.turns)}",
            said=_plain(turn.reply),
            reward=at(summary.rewards, number - 1),
        )
        for number, turn in enumerate(episode.turns, 1)
    ]
    ended = summary.cause if summary.outcome.void else summary.outcome.value
    return [
        *found,
        Shot(
            frame=episode.final_frames[-1] if episode.final_frames else None,
            words=_plain(episode.final_shown),
            mark=None,
            title="end",
            said=printable(f"{ended}, reward {summary.total:g}"),
            reward=None,
        ),
    ]


def _plain(words: str) -> str:
    return printable(without_placeholders(words))


def _cut(line: str, columns: int) -> list[str]:
    return [line[first : first + columns] for first in range(0, len(line), columns)] or [""]


class Artist:
    """Draws the shots of one episode, all of the size of its first frame.

    Args:
        run: where the frames are.
        recorded: the episode.
        width: of the pictures in pixels, even.
    """

    def __init__(self, run: Run, recorded: RecordedEpisode, width: int) -> None:
        self._run, self.shots, self._width = run, shots(recorded), width
        first = next((f for f in map(self._frame, self.shots) if f is not None), None)
        share = 0.5 if first is None else first.shape[0] / first.shape[1]
        self._height = max(1, round(width * min(share, _TALLEST)))
        self._font = ImageFont.load_default(14)
        self._small = ImageFont.load_default(12)

    def pictures(self) -> Iterator[Pillow.Image]:
        """One for each shot; width and height are even, as video needs them."""
        return map(self._drawn, self.shots)

    def _frame(self, shot: Shot) -> Image | None:
        return None if shot.frame is None else self._run.frame(shot.frame)

    def _drawn(self, shot: Shot) -> Pillow.Image:
        height = (self._height + _CAPTION + 1) // 2 * 2
        picture = Pillow.new("RGB", (self._width, height), _PAPER)
        frame = self._frame(shot)
        if frame is not None:
            picture.paste(self._screen(frame))
        draw = ImageDraw.Draw(picture, "RGBA")
        if frame is None:
            words = shot.words or ("this frame is not recorded" if shot.frame else "")
            self._write(draw, words)
        if frame is not None and shot.mark is not None:
            self._touch(draw, shot.mark)
        self._caption(draw, shot)
        return picture

    def _screen(self, frame: Image) -> Pillow.Image:
        whole = Pillow.fromarray(np.ascontiguousarray(frame))
        return whole.resize((self._width, self._height), Pillow.Resampling.LANCZOS)

    def _write(self, draw: ImageDraw.ImageDraw, words: str) -> None:
        """Words in columns of one width: boards are drawn with signs."""
        columns = max(1, (self._width - 2 * _MARGIN) // _COLUMN)
        lines = [part for line in words.splitlines() for part in _cut(line, columns)]
        for row, line in enumerate(lines[: max(1, (self._height - 2 * _MARGIN) // _ROW)]):
            for column, sign in enumerate(line):
                place = (_MARGIN + (column + 0.5) * _COLUMN, _MARGIN + row * _ROW)
                draw.text(place, sign, fill=_INK, font=self._font, anchor="ma")

    def _touch(self, draw: ImageDraw.ImageDraw, mark: Mark) -> None:
        x, y = mark.to_x * self._width, mark.to_y * self._height
        if mark.moves:
            start = (mark.x * self._width, mark.y * self._height)
            draw.line((*start, x, y), fill=(*_TOUCH, 220), width=4)
        radius = self._width / 26
        draw.ellipse(
            (x - radius, y - radius, x + radius, y + radius),
            fill=(*_TOUCH, 70), outline=(*_TOUCH, 255), width=2,
        )  # fmt: skip
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=(*_TOUCH, 255))

    def _caption(self, draw: ImageDraw.ImageDraw, shot: Shot) -> None:
        top = self._height + 8
        draw.text((_MARGIN, top), shot.title, fill=_FAINT, font=self._small)
        if shot.reward is not None:
            colour = _GOOD if shot.reward > 0 else _BAD if shot.reward < 0 else _FAINT
            right = (self._width - _MARGIN, top)
            draw.text(right, format_signed(shot.reward), fill=colour, font=self._small, anchor="ra")
        said = self._fitted(draw, shot.said)
        draw.multiline_text((_MARGIN, top + 18), said, fill=_INK, font=self._font, spacing=3)

    def _fitted(self, draw: ImageDraw.ImageDraw, words: str) -> str:
        """The first line of a reply and, where it is too long, the last, which hold its action."""
        room = self._width - 2 * _MARGIN
        columns = max(8, int(room / draw.textlength("n", font=self._font)))
        lines = textwrap.wrap(words[:_READ] or "(no words)", columns)
        if len(lines) > _LINES or len(words) > _READ:
            end = textwrap.wrap(words[-(_LINES - 1) * columns + 2 :], columns)[1 - _LINES :]
            lines = [f"{lines[0][: columns - 2]} …", *end]
        return "\n".join(lines)

"""Render an episode as an animation, video or contact sheet: screens with replies below."""

import io
import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from agentrl import extras
from agentrl.errors import ConfigError
from agentrl.replay import RecordedEpisode, Run
from agentrl.replay.touch_positions import TouchPosition, touch_of, touch_of_action
from agentrl.runs.episode_summary import at
from agentrl.text.formatting import format_signed, printable
from agentrl.types import Image, without_placeholders

_TURN_S = 0.8
"""Duration of one turn, in seconds."""
_LAST_TURNS = 3
"""Duration of the last image, in turns."""
_WIDTHS = {".gif": 360, ".mp4": 540, ".png": 240}
_COLUMNS = 8
"""Number of images per row of a contact sheet."""
_GAP = 4
_MAX_IMAGES = 4000
"""Maximum number of images in one file."""
_PAPER, _INK, _FAINT, _GOOD, _BAD = "#ffffff", "#15181d", "#667085", "#0b7a4b", "#c2352b"
_TOUCH = (255, 77, 61)
_CAPTION = 98
"""Height of the caption below the screen, in pixels."""
_MARGIN = 10
_LINES = 3
"""Maximum number of lines of a reply."""
_MAX_REPLY = 4_000
"""Maximum number of characters of a reply to lay out."""
_MAX_ASPECT = 8
"""Maximum ratio of height to width; taller screens, which video formats reject, are squeezed."""
_COLUMN, _ROW = 10, 18
"""Size of a character cell of shown text in pixels, before enlarging."""
_LETTER = 14
"""Font size that fits into a character cell."""
_MAX_SCALE = 4.0
"""Maximum factor by which to enlarge short text."""
_MIN_TEXT_ASPECT, _MAX_TEXT_ASPECT = 0.5, 1.0
"""Range of the ratio of height to width of screens, in an episode with only text."""


def gif(run: Run, recorded: RecordedEpisode) -> bytes:
    """Return a looping GIF animation."""
    pictures = list(_pictures(run, recorded, ".gif"))
    file = io.BytesIO()
    turn_ms = round(1000 * _TURN_S)
    times_ms = [turn_ms] * (len(pictures) - 1) + [turn_ms * _LAST_TURNS]
    pictures[0].save(
        file, "GIF", save_all=True, append_images=pictures[1:], duration=times_ms, loop=0,
        optimize=False,
    )  # fmt: skip
    return file.getvalue()


def contact_sheet(run: Run, recorded: RecordedEpisode) -> bytes:
    """Return a PNG with all screens in rows."""
    pictures = list(_pictures(run, recorded, ".png"))
    width, height = pictures[0].size
    columns = min(_COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = Pillow.new("RGB", (columns * (width + _GAP), rows * (height + _GAP)), "#e1e5ea")
    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        sheet.paste(picture, (column * (width + _GAP), row * (height + _GAP)))
    file = io.BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def mp4(run: Run, recorded: RecordedEpisode) -> bytes:
    """Return an H.264 video, which most players support.

    Raises:
        ConfigError: PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise ConfigError(f"PyAV is not installed; run: {extras.GET_STREAM}") from error
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        rate = Fraction(1 / Fraction(str(_TURN_S)))
        stream = None
        for picture in _hold_last(_pictures(run, recorded, ".mp4")):
            if stream is None:
                stream = container.add_stream("libx264", rate=rate)
                stream.width, stream.height = picture.size
                stream.pix_fmt = "yuv420p"
                stream.options = {"crf": "20", "preset": "veryfast"}
            frame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]
            for packet in stream.encode(frame):
                container.mux(packet)
        assert stream is not None, "an episode has an end"
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


def _pictures(run: Run, recorded: RecordedEpisode, suffix: str) -> Iterator[Pillow.Image]:
    painter = TurnPainter(run, recorded, _WIDTHS[suffix])
    count = len(painter.shots)
    if count > _MAX_IMAGES:
        raise ConfigError(
            f"{recorded.summary.id} has {count} screens, but a file has at most {_MAX_IMAGES}; "
            "export the episode as .html instead"
        )
    return painter.pictures()


def _hold_last(pictures: Iterator[Pillow.Image]) -> Iterator[Pillow.Image]:
    last = None
    for last in pictures:
        yield last
    for _ in range(_LAST_TURNS - 1):
        assert last is not None, "an episode has an end"
        yield last


@dataclass(slots=True, kw_only=True, frozen=True)
class TurnShot:
    """Content of one image."""

    frame: str | None
    words: str
    mark: TouchPosition | None
    title: str
    caption: str
    reward: float | None


def shots(recorded: RecordedEpisode) -> list[TurnShot]:
    """Return one shot per turn, or per action of a turn with several, and a final shot."""
    episode, summary = recorded.episode, recorded.summary
    turns = list[TurnShot]()
    for number, turn in enumerate(episode.turns, 1):
        by = "" if turn.guide is None else f", by {turn.guide}"
        title = f"turn {number} of {len(episode.turns)}{by}"
        first = TurnShot(
            frame=turn.frames[-1] if turn.frames else None,
            words=_plain(turn.shown),
            mark=touch_of(turn),
            title=title,
            caption=_plain(turn.reply),
            reward=at(summary.rewards, number - 1),
        )
        turns.append(first)
        for index, (before, one) in enumerate(itertools.pairwise(turn.chunk), 2):
            shot = replace(
                first,
                frame=before.frames[-1] if before.frames else None,
                words=_plain(before.shown),
                mark=touch_of_action(one.action),
                title=f"{title}, action {index} of {len(turn.chunk)}",
                reward=None,
            )
            turns.append(shot)
    ended = summary.cause if summary.outcome.void else summary.outcome.value
    return [
        *turns,
        TurnShot(
            frame=episode.final_frames[-1] if episode.final_frames else None,
            words=_plain(episode.final_shown),
            mark=None,
            title="end",
            caption=printable(f"{ended}, reward {summary.reward:g}"),
            reward=None,
        ),
    ]


def _plain(words: str) -> str:
    return printable(without_placeholders(words))


class TurnPainter:
    """Paints an episode's shots, all with the aspect ratio of the first frame."""

    def __init__(self, run: Run, recorded: RecordedEpisode, width: int) -> None:
        self._run, self.shots, self._width = run, shots(recorded), width
        first = next((f for f in map(self._frame, self.shots) if f is not None), None)
        self._text_scale, self._text_left, self._text_top = 1.0, float(_MARGIN), float(_MARGIN)
        if first is None:
            self._height = self._fit_text()
        else:
            aspect = min(first.shape[0] / first.shape[1], _MAX_ASPECT)
            self._height = max(1, round(width * aspect))
        self._letters = ImageFont.load_default(_LETTER * self._text_scale)
        self._font = ImageFont.load_default(14)
        self._small = ImageFont.load_default(12)

    def pictures(self) -> Iterator[Pillow.Image]:
        """Yield one image per shot."""
        return map(self._drawn, self.shots)

    def _frame(self, shot: TurnShot) -> Image | None:
        return None if shot.frame is None else self._run.frame(shot.frame)

    def _drawn(self, shot: TurnShot) -> Pillow.Image:
        # Video formats require even sizes.
        height = (self._height + _CAPTION + 1) // 2 * 2
        picture = Pillow.new("RGB", (self._width, height), _PAPER)
        draw = ImageDraw.Draw(picture, "RGBA")
        if (frame := self._frame(shot)) is None:
            self._write(draw, self._lines(shot))
        else:
            whole = Pillow.fromarray(np.ascontiguousarray(frame))
            size = (self._width, self._height)
            picture.paste(whole.resize(size, Pillow.Resampling.LANCZOS))
            if shot.mark is not None:
                self._touch(draw, shot.mark)
        self._caption(draw, shot)
        return picture

    def _lines(self, shot: TurnShot) -> list[str]:
        """Return a screen's text, split into lines that fit before enlarging."""
        words = shot.words or ("this frame was not recorded" if shot.frame else "")
        columns = max(1, (self._width - 2 * _MARGIN) // _COLUMN)
        return [
            line[first : first + columns]
            for line in words.splitlines()
            for first in range(0, len(line) or 1, columns)
        ]

    def _fit_text(self) -> int:
        """Enlarge and center the text equally on all screens, so that a board does not move.

        Returns:
            The height of the screens, in pixels.
        """
        screens = [self._lines(shot) for shot in self.shots]
        text_width = _COLUMN * max([1, *(len(line) for lines in screens for line in lines)])
        text_height = _ROW * max([1, *map(len, screens)])
        scale = min((self._width - 2 * _MARGIN) / text_width, _MAX_SCALE)
        aspect = (text_height * scale + 2 * _MARGIN) / self._width
        height = round(self._width * min(max(aspect, _MIN_TEXT_ASPECT), _MAX_TEXT_ASPECT))
        scale = max(1.0, min(scale, (height - 2 * _MARGIN) / text_height))
        self._text_scale = scale
        self._text_left = (self._width - text_width * scale) / 2
        self._text_top = max(_MARGIN, (height - text_height * scale) / 2)
        return height

    def _write(self, draw: ImageDraw.ImageDraw, lines: list[str]) -> None:
        """Write text in a fixed grid, because text environments draw boards with characters."""
        # Pillow's own font is not monospaced, so draw each character in its cell.
        column_width, row_height = _COLUMN * self._text_scale, _ROW * self._text_scale
        # Do not let rounding drop the last row of text that fills the height.
        most_rows = max(1, int((self._height - 2 * _MARGIN) / row_height + 0.01))
        for row, line in enumerate(lines[:most_rows]):
            for column, character in enumerate(line):
                x = self._text_left + (column + 0.5) * column_width
                y = self._text_top + row * row_height
                draw.text((x, y), character, fill=_INK, font=self._letters, anchor="ma")

    def _touch(self, draw: ImageDraw.ImageDraw, mark: TouchPosition) -> None:
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

    def _caption(self, draw: ImageDraw.ImageDraw, shot: TurnShot) -> None:
        top = self._height + 8
        draw.text((_MARGIN, top), shot.title, fill=_FAINT, font=self._small)
        if shot.reward is not None:
            color = _GOOD if shot.reward > 0 else _BAD if shot.reward < 0 else _FAINT
            right = (self._width - _MARGIN, top)
            draw.text(right, format_signed(shot.reward), fill=color, font=self._small, anchor="ra")
        caption = self._fitted(draw, shot.caption)
        draw.multiline_text((_MARGIN, top + 18), caption, fill=_INK, font=self._font, spacing=3)

    def _fitted(self, draw: ImageDraw.ImageDraw, words: str) -> str:
        """Fit a reply into `_LINES` lines: its first line, and its last lines with the action."""
        width = self._width - 2 * _MARGIN
        columns = max(8, int(width / draw.textlength("n", font=self._font)))
        lines = textwrap.wrap(words[:_MAX_REPLY] or "(empty reply)", columns)
        if len(lines) > _LINES or len(words) > _MAX_REPLY:
            end = textwrap.wrap(words[-(_LINES - 1) * columns + 2 :], columns)[1 - _LINES :]
            lines = [f"{lines[0][: columns - 2]} …", *end]
        return "\n".join(lines)

"""One episode as an animation, a video or a contact sheet."""

import io
from collections.abc import Iterator
from fractions import Fraction
from types import ModuleType

from PIL import Image as Pillow

from agentrl.errors import ConfigError
from agentrl.replay import RecordedEpisode, Run
from agentrl.viewer.export.turn_images import TurnPainter

_TURN_S = 0.8
"""Duration of one turn."""
_LAST_TURNS = 3
"""How many turns' time the last image stays."""
_WIDTHS = {".gif": 360, ".mp4": 540, ".png": 240}
_COLUMNS = 8
"""Images per row of a contact sheet."""
_GAP = 4
_MAX_IMAGES = 4000
"""Images in one file."""


def gif(run: Run, recorded: RecordedEpisode) -> bytes:
    """An animation that repeats."""
    pictures = list(_pictures(run, recorded, ".gif"))
    file = io.BytesIO()
    turn_ms = round(1000 * _TURN_S)
    times_ms = [turn_ms] * (len(pictures) - 1) + [turn_ms * _LAST_TURNS]
    pictures[0].save(
        file, "GIF", save_all=True, append_images=pictures[1:], duration=times_ms, loop=0,
        optimize=False,
    )  # fmt: skip
    return file.getvalue()


def strip(run: Run, recorded: RecordedEpisode) -> bytes:
    """A contact sheet: all screens in rows, as PNG."""
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
    """An H.264 video, which plays everywhere.

    Raises:
        ConfigError: PyAV is not installed.
    """
    av = _load_av()
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
            for packet in stream.encode(av.VideoFrame.from_image(picture)):
                container.mux(packet)
        assert stream is not None, "an episode has an end"
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


def _pictures(run: Run, recorded: RecordedEpisode, suffix: str) -> Iterator[Pillow.Image]:
    count = len(recorded.episode.turns) + 1
    if count > _MAX_IMAGES:
        raise ConfigError(
            f"{recorded.summary.id} has {count} screens; a file holds at most {_MAX_IMAGES}. "
            "Export it as .html"
        )
    return TurnPainter(run, recorded, _WIDTHS[suffix]).pictures()


def _hold_last(pictures: Iterator[Pillow.Image]) -> Iterator[Pillow.Image]:
    last = None
    for last in pictures:
        yield last
    for _ in range(_LAST_TURNS - 1):
        assert last is not None, "an episode has an end"
        yield last


def _load_av() -> ModuleType:
    try:
        import av
    except ImportError as error:
        raise ConfigError(
            "an .mp4 needs PyAV, which is missing: pip install 'agentrl-screens[stream]'"
        ) from error
    return av

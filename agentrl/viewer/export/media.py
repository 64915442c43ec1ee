"""One episode as a film or a strip of pictures."""

import io
from collections.abc import Iterator
from fractions import Fraction
from types import ModuleType

from PIL import Image as Pillow

from agentrl.errors import ConfigError
from agentrl.replay import RecordedEpisode, Run
from agentrl.viewer.export.turn_images import Artist

_SECONDS = 0.8
"""Of one turn in a film."""
_LAST = 3
"""Turns' time that the last picture stays."""
_WIDTHS = {".gif": 360, ".mp4": 540, ".png": 240}
_COLUMNS = 8
"""Pictures in a row of a strip."""
_GAP = 4
_MOST = 4000
"""Pictures of one file."""


def gif(run: Run, recorded: RecordedEpisode) -> bytes:
    """An animation that repeats."""
    pictures = list(_pictures(run, recorded, ".gif"))
    held = io.BytesIO()
    times = [round(1000 * _SECONDS)] * (len(pictures) - 1) + [round(1000 * _SECONDS * _LAST)]
    pictures[0].save(
        held, "GIF", save_all=True, append_images=pictures[1:], duration=times, loop=0,
        optimize=False,
    )  # fmt: skip
    return held.getvalue()


def strip(run: Run, recorded: RecordedEpisode) -> bytes:
    """All screens in rows, as a PNG."""
    pictures = list(_pictures(run, recorded, ".png"))
    width, height = pictures[0].size
    columns = min(_COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    whole = Pillow.new("RGB", (columns * (width + _GAP), rows * (height + _GAP)), "#e1e5ea")
    for place, picture in enumerate(pictures):
        row, column = divmod(place, columns)
        whole.paste(picture, (column * (width + _GAP), row * (height + _GAP)))
    held = io.BytesIO()
    whole.save(held, "PNG", optimize=True)
    return held.getvalue()


def mp4(run: Run, recorded: RecordedEpisode) -> bytes:
    """A film in H.264, which plays everywhere.

    Raises:
        ConfigError: PyAV is not installed.
    """
    av = _load_av()
    held = io.BytesIO()
    with av.open(held, "w", format="mp4") as container:
        rate = Fraction(1 / Fraction(str(_SECONDS)))
        stream = None
        for picture in _lingering(_pictures(run, recorded, ".mp4")):
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
    return held.getvalue()


def _pictures(run: Run, recorded: RecordedEpisode, suffix: str) -> Iterator[Pillow.Image]:
    count = len(recorded.episode.turns) + 1
    if count > _MOST:
        raise ConfigError(f"{recorded.summary.id} has {count} pictures; a file takes {_MOST}")
    return Artist(run, recorded, _WIDTHS[suffix]).pictures()


def _lingering(pictures: Iterator[Pillow.Image]) -> Iterator[Pillow.Image]:
    last = None
    for last in pictures:
        yield last
    for _ in range(_LAST - 1):
        assert last is not None, "an episode has an end"
        yield last


def _load_av() -> ModuleType:
    try:
        import av
    except ImportError as error:
        raise ConfigError(
            "an .mp4 needs PyAV, not installed: pip install 'agentrl[stream]'"
        ) from error
    return av

"""One episode as a single HTML page that needs nothing else: no script, no network."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import cv2
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentrl.replay.marks import mark_of
from agentrl.replay.read import RecordedEpisode, Run
from agentrl.text import printable
from agentrl.types import IMAGE

_WIDEST = 480
"""Pixels; a screen is shown at about 280."""
_LONGEST = 20_000
"""Characters of one reply or info that are shown."""


def render_html(run: Run, recorded: RecordedEpisode) -> str:
    """The page as text. Everything that a model or a phone said is escaped."""
    environment = Environment(
        loader=PackageLoader("agentrl.viewer.export"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    style = environment.get_template("episode.css.jinja").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    pictures = _Pictures(run)
    episode = recorded.episode
    return environment.get_template("episode.html.jinja").render(
        # Written without a filter into <style>: it is a file of ours, and its hash is all that
        # the policy admits.
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        run=run.path.name,
        summary=recorded.summary,
        episode=episode,
        turns=[_turn(recorded, number, pictures) for number in range(len(episode.turns))],
        instructions=_shorten(episode.instructions),
        final_shown=_shorten(episode.final_shown),
        final=[pictures.uri(frame) for frame in episode.final_frames],
    )


def _visible(value: Any) -> Any:
    """Text as a file can hold and a page can show it; markup and numbers as they are."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if plain else value


def _turn(recorded: RecordedEpisode, number: int, pictures: "_Pictures") -> Mapping[str, Any]:
    """What the page shows of one turn."""
    turn, summary = recorded.episode.turns[number], recorded.summary
    return {
        "number": number + 1,
        "screens": [pictures.uri(frame) for frame in turn.frames],
        "mark": mark_of(turn),
        "shown": _shorten(turn.shown.replace(IMAGE, "").strip()),
        "reply": _shorten(turn.reply),
        "action": None if turn.action is None else _shorten(json.dumps(turn.action)),
        "parse_error": turn.parse_error and _shorten(turn.parse_error),
        "reward": _at(summary.rewards, number),
        "advantage": _at(summary.advantages or (), number),
        "components": {name: _at(values, number) for name, values in summary.components.items()},
        "tokens": len(turn.reply_ids),
        "logprob": sum(turn.reply_logprobs),
        "state_key": turn.state_key,
        "info": _shorten(json.dumps(turn.info, indent=1, ensure_ascii=False)),
        "timings": turn.timings,
    }


def _at(values: tuple[float, ...], number: int) -> float | None:
    return values[number] if number < len(values) else None


def _shorten(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text) - _LONGEST} characters more)"


class _Pictures:
    """Frames as data URIs, scaled down; None for a frame that is missing or damaged."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.uri = cache(self._uri)

    def _uri(self, frame_id: str) -> str | None:
        image = self._run.frame(frame_id)
        if image is None:
            return None
        height, width = image.shape[:2]
        if width > _WIDEST:
            size = (_WIDEST, max(1, round(height * _WIDEST / width)))
            scaled = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        else:
            scaled = image
        done, encoded = cv2.imencode(
            ".webp", cv2.cvtColor(scaled, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_WEBP_QUALITY, 82)
        )
        assert done, f"cv2 cannot encode {scaled.shape}"
        return f"data:image/webp;base64,{base64.b64encode(encoded.tobytes()).decode()}"

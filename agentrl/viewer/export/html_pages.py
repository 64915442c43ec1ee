"""Render an episode, group or audit as an HTML page with embedded images and no scripts."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentrl.errors import ConfigError
from agentrl.replay import Filter, RecordedEpisode, Run
from agentrl.replay.touch_positions import touch_of
from agentrl.runs.episode_summary import at
from agentrl.text.formatting import format_signed, printable
from agentrl.types import transcript_of, without_placeholders
from agentrl.viewer.episodes.frame_images import webp
from agentrl.viewer.episodes.page_data import (
    episodes_of,
    rounded,
    shared_state_counts,
    shortened,
    turns_of,
)

_WIDEST = 480
"""Maximum width of a screen in pixels; the page shows screens about 280 pixels wide."""
_GROUP_WIDEST = 160
_MAX_TEXT = 20_000
"""Maximum number of characters of a text to show."""


class EmbeddedFrames:
    """Frames as data URIs, encoding each only once."""

    def __init__(self, run: Run, width: int) -> None:
        self._run, self._width = run, width
        self.uri = cache(self._uri)

    def _uri(self, frame_id: str) -> str | None:
        """Return a frame as a data URI, or None if it is missing or damaged."""
        image = self._run.frame(frame_id)
        if image is None:
            return None
        return f"data:image/webp;base64,{base64.b64encode(webp(image, self._width)).decode()}"


def episode_page(run: Run, recorded: RecordedEpisode) -> bytes:
    """Return an episode's page: screens with touches, replies and rewards."""
    pictures, episode = EmbeddedFrames(run, _WIDEST), recorded.episode
    return render(
        "episode.html.jinja",
        run=run.name,
        summary=recorded.summary,
        episode=episode,
        turns=[_turn(recorded, number, pictures) for number in range(len(episode.turns))],
        instructions=_shortened(episode.instructions),
        preceding=_shortened(transcript_of(episode.preceding)),
        final_shown=_shortened(episode.final_shown),
        final=[pictures.uri(frame) for frame in episode.final_frames],
    )


def _turn(recorded: RecordedEpisode, number: int, pictures: EmbeddedFrames) -> Mapping[str, Any]:
    """Return a turn's variables for the template."""
    turn, summary = recorded.episode.turns[number], recorded.summary
    # All other timings are parts of `act`, measured by the environment.
    timings = turn.timings
    stages = {name: timings[name] for name in ("generate", "act") if name in timings}
    inner = {f"act: {name}": timings[name] for name in timings if name not in stages}
    return {
        "number": number + 1,
        "guide": turn.guide,
        "screens": [pictures.uri(frame) for frame in turn.frames],
        "mark": touch_of(turn),
        "shown": _shortened(without_placeholders(turn.shown)),
        "reply": _shortened(turn.reply),
        "action": None if turn.action is None else _shortened(json.dumps(rounded(turn.action))),
        "chunk": [
            {
                "screens": [pictures.uri(frame) for frame in one.frames],
                "shown": _shortened(one.shown),
                "action": _shortened(json.dumps(rounded(one.action))),
                "reward": one.reward,
            }
            for one in turn.chunk
        ],
        "parse_error": turn.parse_error and _shortened(turn.parse_error),
        "reward": at(summary.rewards, number),
        "advantage": at(summary.advantages, number),
        "components": {name: at(values, number) for name, values in summary.components.items()},
        "tokens": len(turn.reply_ids),
        "logprob": sum(turn.reply_logprobs),
        "state_key": turn.state_key,
        "info": _shortened(json.dumps(turn.info, indent=1, ensure_ascii=False)),
        "timings": stages | inner,
    }


def group_page(run: Run, group: str) -> bytes:
    """Return a group's page: each member's turns in a row, with rewards and advantages.

    Raises:
        ConfigError: the group does not exist.
    """
    members = sorted(run.episodes(Filter(group=group)), key=lambda s: (s.member, s.id))
    if not members:
        raise ConfigError(f"{run.path} has no group {group!r} (agentrl view RUN shows all)")
    whole = episodes_of(run, members)
    pictures = EmbeddedFrames(run, _GROUP_WIDEST)
    valid = [member.reward for member in members if not member.outcome.void]
    rows = [
        {
            "summary": summary,
            "lost": _shortened(episode) if isinstance(episode, str) else None,
            "final": pictures.uri(episode.final_frames[-1])
            if not isinstance(episode, str) and episode.final_frames
            else None,
            "final_shown": "" if isinstance(episode, str) else _words(episode.final_shown),
            "turns": [
                {
                    "screen": pictures.uri(turn.frames[-1]) if turn.frames else None,
                    "shown": _words(turn.shown),
                    "reply": _shortened(turn.reply),
                    "guide": turn.guide,
                    "reward": at(summary.rewards, number),
                    "advantage": at(summary.advantages, number),
                    "met": met[number],
                }
                for number, turn in enumerate(turns_of(episode))
            ],
        }
        for summary, episode, met in zip(members, whole, shared_state_counts(whole), strict=True)
    ]
    mean = sum(valid) / len(valid) if valid else None
    return render(
        "group.html.jinja", run=run.name, group=group, first=members[0], rows=rows, mean=mean
    )


def audit_page(run: Run, report: Mapping[str, Any]) -> bytes:
    """Return an audit's page: how often the reward agrees with the truth, and the worst cases."""
    pictures = EmbeddedFrames(run, _WIDEST)
    known = {summary.id: summary for summary in run.episodes()}
    whole = episodes_of(run, [known[case["id"]] for case in report["cases"]])
    rows = [
        {
            **case,
            "why": _shortened(case.get("why") or ""),
            "screen": pictures.uri(case["frame"]) if case["frame"] else None,
            "reply": _shortened(turns[-1].reply) if (turns := turns_of(played)) else "",
            "task": "" if isinstance(played, str) else _words(played.instructions),
        }
        for case, played in zip(report["cases"], whole, strict=True)
    ]
    return render("audit.html.jinja", run=run.name, report=report, rows=rows)


def _words(shown: str) -> str:
    return without_placeholders(shown)[:400]


def render(template: str, **values: Any) -> bytes:
    """Render one of the package's templates. All text from models and phones is escaped."""
    environment = Environment(
        loader=PackageLoader("agentrl.viewer.export"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    environment.filters["signed"] = format_signed
    tokens = (resources.files("agentrl.viewer") / "static" / "tokens.css").read_text("utf-8")
    style = tokens + environment.get_template("single.css.jinja").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template).render(
        # Inserted into <style> unescaped, as it is our own file. The content security policy
        # only allows this file's hash.
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        **values,
    )
    return page.encode()


def _visible(value: Any) -> Any:
    """Make text printable, leaving markup and numbers unchanged."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if plain else value


def _shortened(text: str) -> str:
    return shortened(text, _MAX_TEXT)

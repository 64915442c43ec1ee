"""One episode as a single HTML page."""

import json
from collections.abc import Mapping
from typing import Any

from agentrl.replay import RecordedEpisode, Run
from agentrl.replay.episode_summary import at
from agentrl.replay.touch_marks import touch_of
from agentrl.types import without_placeholders
from agentrl.viewer.export.embedded_page import EmbeddedFrames, render, shortened
from agentrl.viewer.page_data import rounded

_WIDEST = 480
"""Pixels; the page shows screens at about 280."""


def page(run: Run, recorded: RecordedEpisode) -> bytes:
    """The page: screens with their touches, replies and rewards."""
    pictures, episode = EmbeddedFrames(run, _WIDEST), recorded.episode
    return render(
        "episode.html.jinja",
        run=run.name,
        summary=recorded.summary,
        episode=episode,
        turns=[_turn(recorded, number, pictures) for number in range(len(episode.turns))],
        instructions=shortened(episode.instructions),
        final_shown=shortened(episode.final_shown),
        final=[pictures.uri(frame) for frame in episode.final_frames],
    )


def _turn(recorded: RecordedEpisode, number: int, pictures: EmbeddedFrames) -> Mapping[str, Any]:
    """One turn as the template needs it."""
    turn, summary = recorded.episode.turns[number], recorded.summary
    return {
        "number": number + 1,
        "screens": [pictures.uri(frame) for frame in turn.frames],
        "mark": touch_of(turn),
        "shown": shortened(without_placeholders(turn.shown)),
        "reply": shortened(turn.reply),
        "action": None if turn.action is None else shortened(json.dumps(rounded(turn.action))),
        "parse_error": turn.parse_error and shortened(turn.parse_error),
        "reward": at(summary.rewards, number),
        "advantage": at(summary.advantages, number),
        "components": {name: at(values, number) for name, values in summary.components.items()},
        "tokens": len(turn.reply_ids),
        "logprob": sum(turn.reply_logprobs),
        "state_key": turn.state_key,
        "info": shortened(json.dumps(turn.info, indent=1, ensure_ascii=False)),
        "timings": _timings(turn.timings),
    }


def _timings(timings: Mapping[str, float]) -> dict[str, float]:
    """The stages of a turn, followed by the parts of `act` that the environment measured."""
    stages = {name: timings[name] for name in ("generate", "act") if name in timings}
    inner = {f"act: {name}": timings[name] for name in timings if name not in stages}
    return stages | inner

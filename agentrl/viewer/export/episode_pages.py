"""One episode, or the episodes of a group, as a single HTML page."""

import json
from collections.abc import Mapping
from typing import Any

from agentrl.errors import ConfigError
from agentrl.replay import Filter, RecordedEpisode, Run
from agentrl.replay.episode_summary import at
from agentrl.replay.touch_marks import touch_of
from agentrl.types import without_placeholders
from agentrl.viewer.export.embedded_page import EmbeddedFrames, render, shortened
from agentrl.viewer.page_data import episodes_of, rounded, shared_state_counts, turns_of

_WIDEST = 480
"""Pixels; the page shows screens at about 280."""
_GROUP_WIDEST = 160


def episode_page(run: Run, recorded: RecordedEpisode) -> bytes:
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


def group_page(run: Run, group: str) -> bytes:
    """The page: each member's turns in a row, with rewards and advantages.

    Raises:
        ConfigError: there is no such group.
    """
    members = sorted(run.episodes(Filter(group=group)), key=lambda s: (s.member, s.id))
    if not members:
        raise ConfigError(f"{run.path} has no group {group!r} (agentrl view RUN shows all)")
    whole = episodes_of(run, members)
    pictures = EmbeddedFrames(run, _GROUP_WIDEST)
    valid = [member.total for member in members if not member.outcome.void]
    rows = [
        {
            "summary": summary,
            "lost": shortened(episode) if isinstance(episode, str) else None,
            "final": pictures.uri(episode.final_frames[-1])
            if not isinstance(episode, str) and episode.final_frames
            else None,
            "final_shown": "" if isinstance(episode, str) else _words(episode.final_shown),
            "turns": [
                {
                    "screen": pictures.uri(turn.frames[-1]) if turn.frames else None,
                    "shown": _words(turn.shown),
                    "reply": shortened(turn.reply),
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


def _words(shown: str) -> str:
    return without_placeholders(shown)[:400]

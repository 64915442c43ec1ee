"""The episodes of a group as a single HTML page."""

from agentrl.errors import ConfigError
from agentrl.replay import Filter, Run
from agentrl.replay.episode_summary import at
from agentrl.types import without_placeholders
from agentrl.viewer.export.embedded_page import EmbeddedFrames, render, shortened
from agentrl.viewer.page_data import episodes_of, shared_state_counts, turns_of

_WIDEST = 160


def siblings(run: Run, group: str) -> bytes:
    """The page: each member's turns in a row, with rewards and advantages.

    Raises:
        ConfigError: there is no such group.
    """
    members = sorted(run.episodes(Filter(group=group)), key=lambda s: (s.member, s.id))
    if not members:
        raise ConfigError(f"{run.path} has no group {group!r} (agentrl view RUN shows all)")
    whole = episodes_of(run, members)
    pictures = EmbeddedFrames(run, _WIDEST)
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

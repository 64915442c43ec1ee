"""Make pairs of a better and a worse answer from recorded episodes of a group.

Siblings start from the same state, so a better result is a preference: between whole episodes,
between replies at a state that both reached, or by a person's choice.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.config import History
from agentrl.errors import ConfigError
from agentrl.files import atomic_replace
from agentrl.replay.human_preferences import choices
from agentrl.replay.run_reader import RecordedEpisode, Run
from agentrl.replay.tables_export import chat_of, images_folder, prompt_of, store_frame
from agentrl.runs.episode_summary import Filter, sibling_groups
from agentrl.types import Episode, EpisodeMessage

KINDS = ("episode", "state", "choice")
_NOTHING = {
    "episode": "no group has valid episodes from the same start with different rewards",
    "state": "no group has different replies at the same state followed by different rewards; "
    "states are the same if the environment reports the same info['state_key']",
    "choice": "no choices have been made yet; open agentrl view RUN, page Preferences",
}
"""Reasons why a run has no pairs, by kind."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PairSettings:
    """Settings for making pairs from a group's episodes."""

    by: str = "episode"
    """`episode`: pair episodes of higher and lower reward; `state`: pair replies at the same state,
    by the reward that followed; `choice`: use choices made in the viewer."""
    min_gap: float = 0.0
    """Minimum difference of the rewards; it must always be above 0. Ignored for choices."""
    per_group: int | None = None
    """Maximum number of pairs per group, keeping the largest differences; None for all."""

    def validate(self) -> None:
        """Raise `ConfigError` for the first invalid value."""
        if self.by not in KINDS:
            raise ConfigError(f"--by {self.by}: must be one of {', '.join(KINDS)}")
        if self.min_gap < 0:
            raise ConfigError(f"--min-gap {self.min_gap}: must be at least 0")
        if self.per_group is not None and self.per_group < 1:
            raise ConfigError(f"--per-group {self.per_group}: must be at least 1")


@dataclass(slots=True, kw_only=True, frozen=True)
class _Pair:
    """A better and a worse continuation after the same prompt."""

    prompt: Sequence[EpisodeMessage]
    better: RecordedEpisode
    worse: RecordedEpisode
    chosen: Sequence[EpisodeMessage]
    rejected: Sequence[EpisodeMessage]
    gap: float


def write(run: Run, path: Path, where: Filter, history: History, settings: PairSettings) -> int:
    """Write a run's pairs as JSON lines, and their images into a folder next to the file.

    Rows have `prompt`, `chosen` and `rejected` as messages, `images`, `chosen_images` and
    `rejected_images` as paths, and the ids of both episodes.

    Args:
        run: the recorded run.
        path: `FILE.jsonl`; images go to the folder `FILE-images`.
        where: which episodes.
        history: the contents of prompts when the run was played.
        settings: which pairs to make.

    Returns:
        The number of pairs.

    Raises:
        ConfigError: a value is invalid, nothing can be paired, or the file cannot be written.
    """
    settings.validate()
    if path.suffix != ".jsonl":
        raise ConfigError(f"{path}: must end in .jsonl")
    images = images_folder(path)
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(path) as partial:
            with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                for pair in _pairs(run, where, history, settings):
                    if (row := _row(pair, run, images)) is not None:
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                        count += 1
            # Raise before the file is replaced.
            if not count:
                raise ConfigError(f"{run.path}: {_NOTHING[settings.by]}")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
    return count


def _pairs(run: Run, where: Filter, history: History, settings: PairSettings) -> Iterator[_Pair]:
    if settings.by == "choice":
        known = {summary.id: summary for summary in run.episodes(where)}
        for chosen in choices(run):
            if known.keys() >= {*chosen}:
                opened = list(run.opened(known[id] for id in chosen))
                pair = _whole(*opened[:2], history=history, gap=0.0) if len(opened) == 2 else None
                if pair is not None:
                    yield pair
        return
    for members in sibling_groups(run.episodes(where)):
        compare = _at_states if settings.by == "state" else _by_total
        found = compare(list(run.opened(members)), history)
        enough = [pair for pair in found if pair.gap > 0 and pair.gap >= settings.min_gap]
        yield from sorted(enough, key=lambda pair: -pair.gap)[: settings.per_group]


def _by_total(members: Sequence[RecordedEpisode], history: History) -> Iterator[_Pair]:
    """Pair the best episode with the worst, the second best with the second worst, and so on."""
    ranked = sorted(members, key=lambda one: (bool(one.summary.success), one.summary.reward))
    for worse, better in zip(ranked[: len(ranked) // 2], ranked[::-1], strict=False):
        gap = better.summary.reward - worse.summary.reward
        if (pair := _whole(better, worse, history=history, gap=gap)) is not None:
            yield pair


def _whole(
    better: RecordedEpisode, worse: RecordedEpisode, *, history: History, gap: float
) -> _Pair | None:
    """Pair two episodes from their first different reply on; return None if all are equal.

    If prompts show only the last turns or screens, an episode is not a single conversation, so only
    the first differing replies are paired.
    """
    good, bad = better.episode, worse.episode
    if (good.instructions, good.preceding) != (bad.instructions, bad.preceding):
        return None
    same = 0
    for one, other in zip(good.turns, bad.turns, strict=False):
        if (one.shown, one.frames) != (other.shown, other.frames):
            # The episodes start differently, or the environment is random.
            return None
        if one.reply != other.reply:
            if one.guide or other.guide:  # what differs is not the policy's choice
                return None
            break
        same += 1
    else:
        return None
    count = 1 if history != History() else None
    return _Pair(
        prompt=prompt_of(good, same, history), better=better, worse=worse,
        chosen=_replies_from(good, same)[:count], rejected=_replies_from(bad, same)[:count],
        gap=gap,
    )  # fmt: skip


def _replies_from(episode: Episode, turn: int) -> list[EpisodeMessage]:
    """Return the messages from a turn's reply on."""
    messages = episode.messages()
    return messages[len(messages) - 2 * (len(episode.turns) - turn) + 1 :]


def _at_states(members: Sequence[RecordedEpisode], history: History) -> Iterator[_Pair]:
    """Pair the best and the worst reply to each state that several members reached."""
    reached = defaultdict[str, list[tuple[float, RecordedEpisode, int]]](list)
    for member in members:
        rewards = member.summary.rewards
        for number, turn in enumerate(member.episode.turns):
            if turn.guide is not None:
                continue
            if turn.state_key is not None and len(rewards) == len(member.episode.turns):
                reached[turn.state_key].append((sum(rewards[number:]), member, number))
    for visits in reached.values():
        if len(visits) < 2:
            continue
        (low, worse, later), *_, (high, better, at) = sorted(visits, key=lambda one: one[0])
        chosen = _replies_from(better.episode, at)[:1]
        rejected = _replies_from(worse.episode, later)[:1]
        if chosen == rejected:
            continue
        yield _Pair(
            prompt=prompt_of(better.episode, at, history), better=better, worse=worse,
            chosen=chosen, rejected=rejected, gap=high - low,
        )  # fmt: skip


def _row(pair: _Pair, run: Run, folder: Path) -> dict[str, Any] | None:
    """Return a row of the file, or None if a frame was not recorded."""
    row: dict[str, Any] = {}
    for name, images, messages in (
        ("prompt", "images", pair.prompt),
        ("chosen", "chosen_images", pair.chosen),
        ("rejected", "rejected_images", pair.rejected),
    ):
        row[name], frames = chat_of(messages)
        row[images] = [store_frame(run, frame, folder) for frame in frames]
        if not all(row[images]):
            return None
    better, worse = pair.better.summary, pair.worse.summary
    return row | {
        "chosen_id": better.id, "rejected_id": worse.id, "group": better.group, "gap": pair.gap,
    }  # fmt: skip

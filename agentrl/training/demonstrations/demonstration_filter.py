"""Selects the recorded episodes that a warm start trains on (`warm_start.recorded`).

Episodes are read only once, when the job is checked, so these are the episodes trained on.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentrl import replay
from agentrl.config import EvalConfig, ModelConfig, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.replay.episode_json import to_json
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.runs.episode_summary import label_of
from agentrl.runs.run_folder import RunFolder
from agentrl.text.formatting import pluralize
from agentrl.training import env_seeds
from agentrl.training.demonstrations.reply_conversion import convert_replies
from agentrl.types import Episode, Turn

log = logging.getLogger(__name__)

_HUMAN = "human"
"""Label of episodes played by a person."""


@dataclass(slots=True, kw_only=True, frozen=True)
class SelectedEpisode:
    """A recorded episode of T turns to train on."""

    run: replay.Run
    episode: Episode
    """The episode without its images and token ids, which may belong to another model."""
    replies: tuple[str, ...]
    """[T] replies in the action format of the job's translator."""
    by_player: bool
    """True if the warm start's scripted player played the episode, so that it can be relabeled."""
    has_other_instructions: bool
    """True if the episode was played with instructions other than the job's."""


@dataclass(slots=True, kw_only=True)
class DemonstrationSelection:
    """The selected episodes of some runs, and the number of skipped episodes."""

    episodes: list[SelectedEpisode] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Number of skipped episodes by reason."""

    @property
    def has_other_instructions(self) -> int:
        """Number of selected episodes that were played with other instructions."""
        return sum(chosen.has_other_instructions for chosen in self.episodes)

    @property
    def context_turns(self) -> int:
        """Number of turns that are only used as context because their reply was not an action."""
        turns = (turn for chosen in self.episodes for turn in chosen.episode.turns)
        return sum(turn.parse_error is not None for turn in turns)

    def __str__(self) -> str:
        turns = sum(len(chosen.episode.turns) for chosen in self.episodes)
        trained = pluralize(turns - self.context_turns, "turn")
        text = f"{pluralize(len(self.episodes), 'episode')} with {trained}"
        if self.context_turns:
            text += (
                f", and {self.context_turns} used only as context, because their replies are not "
                "actions"
            )
        if self.skipped:
            skipped = ", ".join(f"{count} {why}" for why, count in self.skipped.items())
            text += f"; skipped: {skipped}"
        return text


def select_demonstrations(
    warm: WarmStartConfig | None,
    env: ResolvedEnv,
    model: ModelConfig,
    evaluation: EvalConfig,
) -> DemonstrationSelection:
    """Select the recorded episodes that a job's warm start trains on; none without a warm start.

    Skips void episodes, episodes with a private screen or without any valid action, and
    episodes on the job's evaluation seeds. Logs how many were skipped for each reason.

    Raises:
        ConfigError: a run does not exist, no episode qualifies, or episodes cannot be used because
            they come from another environment, lack text or images, or have a different format.
    """
    choice = DemonstrationSelection()
    if warm is None or not warm.recorded:
        return choice
    try:
        where = replay.Filter(**asdict(warm.recorded_filter))
    except ConfigError as error:
        raise ConfigError(f"warm_start.recorded_filter.{error}") from None
    held_out = env_seeds.evaluation_seeds(
        evaluation, max(evaluation.episodes, evaluation.episodes_during)
    )
    demonstrations = DemonstrationFilter(warm, env, model, held_out)
    for path in warm.recorded:
        for selected in demonstrations.select(path, where):
            if isinstance(selected, SelectedEpisode):
                choice.episodes.append(selected)
            else:
                choice.skipped[selected] += 1
    if not choice.episodes:
        filters = {k: v for k, v in asdict(warm.recorded_filter).items() if v is not None}
        raise ConfigError(
            f"warm_start.recorded={warm.recorded}: no episode can be used: {choice}. "
            f"{f'The filter is {filters}; ' if filters else ''}agentrl episodes RUN lists the "
            "episodes"
        )
    _log_skipped(choice)
    return choice


def _log_skipped(choice: DemonstrationSelection) -> None:
    if choice.skipped or choice.context_turns:
        log.warning("warm_start.recorded: %s", choice)
    if choice.has_other_instructions:
        log.warning(
            "warm_start.recorded: %d of %d episodes were played with other instructions; they are "
            "used with this job's instructions",
            choice.has_other_instructions,
            len(choice.episodes),
        )


class DemonstrationFilter:
    """Decides which recorded episodes the warm start can train on.

    Args:
        warm: the job's warm start.
        env: the job's environment.
        model: the job's model.
        held_out: the job's evaluation seeds.
    """

    def __init__(
        self,
        warm: WarmStartConfig,
        env: ResolvedEnv,
        model: ModelConfig,
        held_out: Iterable[int],
    ) -> None:
        self._warm, self._env, self._model = warm, env, model
        self._translator = open_translator(env)
        self._held_out = frozenset(held_out)
        self._names = {env.id, env.registration.id}

    def select(self, path: str, where: replay.Filter) -> Iterator[SelectedEpisode | str]:
        """Yield for each episode of a run the selected episode, or the reason for skipping it.

        Raises:
            ConfigError: see `select_demonstrations`.
        """
        try:
            run = replay.open(path)
            summaries = where.of(run.episodes())  # episodes of other runs may have the same label
            settings = _settings(run.path)
        except ConfigError as error:
            raise ConfigError(f"warm_start.recorded: {error}") from None
        for summary in summaries:
            self._check_env(run, summary)
            if summary.outcome.void:
                yield "void"
            elif summary.removed:
                yield "removed by run.keep_gb"
            elif summary.seed in self._held_out:
                yield "of held-out seeds (eval.first_seed)"
            else:
                yield self._load(run, summary, settings)

    def _check_env(self, run: replay.Run, summary: replay.Summary) -> None:
        played = summary.env_id
        if not {played, played.rpartition(":")[2]} & self._names:
            raise ConfigError(
                f"warm_start.recorded: {run.path} was played in {played}, but this job has "
                f"env.id={self._env.id}; list only runs of this environment"
            )

    def _is_by_player(self, summary: replay.Summary, settings: Mapping[str, Any]) -> bool:
        """Return whether the warm start's scripted player played an episode."""
        player = self._warm.player
        if player is None:
            return False
        if summary.split == "demo" and summary.label == "demo":  # played for a warm start
            theirs = settings["warm_start"] or {}
            return bool(theirs.get("player") == player)
        return summary.split != "train" and summary.label == label_of(player)

    def _load(
        self, run: replay.Run, summary: replay.Summary, settings: Mapping[str, Any]
    ) -> SelectedEpisode | str:
        episode = run.episode(summary.id).episode
        if any(message.num_images for message in episode.messages()):
            self._check_frames(run.path, settings)
        if (why := _skip_reason(run, episode)) is not None:
            return why
        if self._env.settings.dialect is None:
            said = convert_replies(
                self._translator,
                episode,
                by_human=summary.label == _HUMAN,
                most=self._env.settings.max_actions_per_reply,
            )
        else:  # replies are rewritten later, along with their screens
            said = [turn.reply for turn in episode.turns]
        instructions = instructions_for(self._env.settings, self._translator, episode.reset_info)
        return SelectedEpisode(
            run=run,
            episode=replace(episode, turns=tuple(map(_without_tokens, episode.turns))),
            replies=tuple(said),
            by_player=self._is_by_player(summary, settings),
            has_other_instructions=episode.instructions != instructions,
        )

    def _check_frames(self, path: Path, settings: Mapping[str, Any]) -> None:
        frames = settings["run"].get("frames")
        if frames == "none":
            raise ConfigError(
                f"warm_start.recorded: {path} has no images (run.frames=none); record it again "
                "with run.frames=device"
            )
        if settings["devices"].get("mask"):
            raise ConfigError(
                f"warm_start.recorded: {path} has images with masked regions (devices.mask), which "
                "the model does not see when it plays; record it again without a mask"
            )
        sizes = ("image_size", "max_pixels")
        theirs = {name: settings["model"].get(name) for name in sizes}
        ours = {name: getattr(self._model, name) for name in sizes}
        if frames == "model" and theirs != ours:
            raise ConfigError(
                f"warm_start.recorded: {path} has images in a different model's size "
                f"(run.frames=model, {theirs}, but this job has {ours}); record it again with "
                "run.frames=device"
            )


def _settings(path: Path) -> Mapping[str, Any]:
    """Return the configuration tree of a run, as it was written.

    Raises:
        ConfigError: the run has no configuration.
    """
    return RunFolder.existing(path).load_config()


def _without_tokens(turn: Turn) -> Turn:
    return replace(
        turn, prompt_ids=(), reply_ids=(), reply_logprobs=(), reply_versions=(),
        reply_top_logprobs=(),
    )  # fmt: skip


def _skip_reason(run: replay.Run, episode: Episode) -> str | None:
    """Return the reason why an episode cannot be used; None if it can."""
    return next(_missing_parts(run, episode), None)


def _missing_parts(run: replay.Run, episode: Episode) -> Iterator[str]:
    turns = episode.turns
    if not turns:
        yield "without a turn"
    elif all(turn.parse_error is not None or turn.guide is not None for turn in turns):
        yield "without any valid action"
    for message in episode.messages():
        if message.role == "user" and not message.text:
            yield "with a private screen"
        elif message.num_images != len(message.frames):
            yield "with an image that was not recorded"
        elif not all(map(run.has_frame, message.frames)):
            yield "with a missing image file"


def demonstrations_digest(demonstrations: Sequence[SelectedEpisode]) -> str:
    """Return the hex SHA-256 digest of the recorded episodes."""
    content = hashlib.sha256()
    for chosen in demonstrations:
        content.update(json.dumps(to_json(chosen.episode), sort_keys=True).encode() + b"\0")
    return content.hexdigest()

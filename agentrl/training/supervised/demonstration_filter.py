"""Whether a recorded episode can be taught, and if not, why."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from agentrl import env, replay
from agentrl.config import Config, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.replay.episode_summary import label_of
from agentrl.rollout.make_env import instructions_of, open_translator
from agentrl.text import counted
from agentrl.training import seeds
from agentrl.training.run_folder import RunFolder
from agentrl.training.supervised.action_phrasing import replies
from agentrl.types import IMAGE, Episode, Turn

_HUMAN = "human"
"""The label of what a person plays."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Chosen:
    """One recorded episode of T turns that is taught."""

    run: replay.Run
    episode: Episode
    """Without pictures, and without tokens: they are another model's, or nobody's."""
    replies: tuple[str, ...]
    """[T] what was said, in the words that the job's game reads."""
    by_player: bool
    """Whether the scripted player of the warm start played it, and can be asked again."""
    told_otherwise: bool
    """Whether it was played under other instructions."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """What is taught of some runs."""

    episodes: list[Chosen] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many were left out, by why."""

    @property
    def told_otherwise(self) -> int:
        """Of those that are taught, how many were played under other instructions."""
        return sum(chosen.told_otherwise for chosen in self.episodes)

    @property
    def only_shown(self) -> int:
        """How many turns are shown before others and not taught: their replies were no action."""
        turns = (turn for chosen in self.episodes for turn in chosen.episode.turns)
        return sum(turn.parse_error is not None for turn in turns)

    def __str__(self) -> str:
        turns = sum(len(chosen.episode.turns) for chosen in self.episodes)
        taught = counted(turns - self.only_shown, "turn")
        told = f"{counted(len(self.episodes), 'episode')} of {taught}"
        if self.only_shown:
            told += f", and {self.only_shown} that are only shown, as their replies were no action"
        if self.left_out:
            out = ", ".join(f"{count} {why}" for why, count in self.left_out.items())
            told += f"; left out: {out}"
        return told


class Judge:
    """Says of each episode whether it can be taught.

    Args:
        config: the job.
        warm: its warm start.
    """

    def __init__(self, config: Config, warm: WarmStartConfig) -> None:
        self._config, self._warm = config, warm
        self._translator = open_translator(config.env)
        self._told = instructions_of(config.env, self._translator)
        most = max(config.eval.episodes, config.eval.episodes_during)
        self._held_out = frozenset(seeds.evaluation(config, most))
        self._names = {config.env.id, env.game(config.env.id).id}

    def judge(self, path: str, where: replay.Filter) -> Iterator[Chosen | str]:
        """Of each episode of one run: what is taught of it, or why it is left out.

        Raises:
            ConfigError: see `choose`.
        """
        try:
            run = replay.open(path)
            summaries = run.episodes(where)
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
                yield "of held-out seeds (eval.seeds)"
            else:
                yield self._opened(run, summary, settings)

    def _check_env(self, run: replay.Run, summary: replay.Summary) -> None:
        played = summary.env_id
        if not {played, played.rpartition(":")[2]} & self._names:
            raise ConfigError(
                f"warm_start.recorded: {run.path} is of {played}, not of "
                f"env.id={self._config.env.id}; only what was played there can be taught"
            )

    def _is_players(self, summary: replay.Summary, settings: Mapping[str, Any]) -> bool:
        """Whether the player of the warm start played it."""
        player = self._warm.player
        if player is None:
            return False
        if summary.split == "demo" and summary.label == "demo":  # for a warm start
            theirs = settings["warm_start"] or {}
            return bool(theirs.get("player") == player)
        return summary.split != "train" and summary.label == label_of(player)

    def _opened(
        self, run: replay.Run, summary: replay.Summary, settings: Mapping[str, Any]
    ) -> Chosen | str:
        episode = run.episode(summary.id).episode
        if episode.turns and not any(turn.shown for turn in episode.turns):
            raise ConfigError(
                f"warm_start.recorded: {run.path} was recorded without the words that were shown "
                "(format 1); play it anew"
            )
        if any(IMAGE in turn.shown for turn in episode.turns):
            self._check_pictures(run.path, settings)
        if (why := _lack(run, episode.turns)) is not None:
            return why
        said = replies(self._translator, episode, by_human=summary.label == _HUMAN)
        return Chosen(
            run=run,
            episode=replace(episode, turns=tuple(map(_without_tokens, episode.turns))),
            replies=tuple(said),
            by_player=self._is_players(summary, settings),
            told_otherwise=episode.instructions != self._told,
        )

    def _check_pictures(self, path: Path, settings: Mapping[str, Any]) -> None:
        frames = settings["run"].get("frames")
        if frames == "none":
            raise ConfigError(
                f"warm_start.recorded: {path} has no pictures (run.frames=none); play it anew with "
                "run.frames=device"
            )
        if settings["devices"].get("mask"):
            raise ConfigError(
                f"warm_start.recorded: {path} has pictures that are black in places "
                "(devices.mask), which no model is shown; play it anew without"
            )
        sizes = ("image_size", "max_pixels")
        theirs = {name: settings["model"].get(name) for name in sizes}
        ours = {name: getattr(self._config.model, name) for name in sizes}
        if frames == "model" and theirs != ours:
            raise ConfigError(
                f"warm_start.recorded: {path} has pictures of another model's size "
                f"(run.frames=model, {theirs}; here {ours}); play it anew with run.frames=device"
            )


def _settings(path: Path) -> Mapping[str, Any]:
    """The settings that a run was played under, as they were written.

    Raises:
        ConfigError: it has none.
    """
    file = RunFolder.existing(path).path / "config.yaml"
    tree: Mapping[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tree


def _without_tokens(turn: Turn) -> Turn:
    return replace(turn, prompt_ids=(), reply_ids=(), reply_logprobs=(), reply_versions=())


def _lack(run: replay.Run, turns: Sequence[Turn]) -> str | None:
    """Why an episode cannot be taught; None where it can."""
    return next(_lacks(run, turns), None)


def _lacks(run: replay.Run, turns: Sequence[Turn]) -> Iterator[str]:
    if not turns:
        yield "without a turn"
    elif all(turn.parse_error is not None for turn in turns):
        yield "without a reply that was an action"
    for turn in turns:
        if not turn.shown:
            yield "with a screen that was private"
        elif turn.shown.count(IMAGE) != len(turn.frames):
            yield "with a picture that was not recorded"
        elif not all(map(run.has_frame, turn.frames)):
            yield "with a picture that was lost"

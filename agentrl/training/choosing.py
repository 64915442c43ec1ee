"""Whether a recorded episode can be taught, and if not, why."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agentrl import env, replay
from agentrl.config import Config, WarmStartConfig
from agentrl.data.templates import render_instructions
from agentrl.errors import ConfigError
from agentrl.rollout.making import open_translator
from agentrl.rollout.ticket import label_of
from agentrl.training import seeds
from agentrl.training.run import RunFolder
from agentrl.training.wording import replies
from agentrl.types import IMAGE, Episode, Turn

_HUMAN = "human"
"""The label of what a person plays."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Chosen:
    """One recorded episode that is taught."""

    run: replay.Run
    summary: replay.Summary
    by_player: bool
    """Whether the scripted player of the warm start played it, and can be asked again."""

    def load(self) -> Episode:
        """The episode, without pictures.

        Raises:
            ConfigError: its file is damaged.
        """
        return self.run.episode(self.summary.id).episode

    @property
    def by_human(self) -> bool:
        """Whether a person played it."""
        return self.summary.label == _HUMAN


@dataclass(slots=True, kw_only=True)
class Choice:
    """What is taught of some runs."""

    episodes: list[Chosen] = field(default_factory=list)
    turns: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """How many were left out, by why."""
    told_otherwise: int = 0
    """Of those that are taught, how many were played under other instructions."""

    def __str__(self) -> str:
        taught = f"{len(self.episodes)} episodes of {self.turns} turns"
        out = ", ".join(f"{count} {why}" for why, count in self.left_out.items())
        return f"{taught}; left out: {out}" if out else taught


class Judge:
    """Says of each episode whether it can be taught.

    Args:
        config: the job.
        warm: its warm start.
    """

    def __init__(self, config: Config, warm: WarmStartConfig) -> None:
        self._config, self._warm = config, warm
        self._translator = open_translator(config.env)
        self._told = render_instructions(config.env.prompt, self._translator.instructions())
        most = max(config.eval.episodes, config.eval.episodes_during)
        self._held_out = frozenset(seeds.evaluation(config, most))
        self._names = {config.env.id, env.game(config.env.id).id}

    def judge(self, path: str, where: replay.Filter, found: Choice) -> None:
        """Add what can be taught of one run.

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
                found.left_out["void"] += 1
            elif summary.removed:
                found.left_out["removed by run.keep_gb"] += 1
            elif summary.seed in self._held_out:
                found.left_out["of held-out seeds (eval.seeds)"] += 1
            else:
                self._open(Chosen(
                    run=run, summary=summary, by_player=self._is_players(summary, settings)
                ), settings, found)  # fmt: skip

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
        if summary.split == "demo":
            theirs = settings["warm_start"] or {}
            return bool(theirs.get("player") == player)
        return summary.split == "eval" and summary.label == label_of(player)

    def _open(self, chosen: Chosen, settings: Mapping[str, Any], found: Choice) -> None:
        episode = chosen.load()
        if episode.turns and not any(turn.shown for turn in episode.turns):
            raise ConfigError(
                f"warm_start.recorded: {chosen.run.path} was recorded without the words that were "
                "shown (format 1); play it anew"
            )
        if any(IMAGE in turn.shown for turn in episode.turns):
            self._check_pictures(chosen.run.path, settings)
        if (why := _lack(chosen.run, episode.turns)) is not None:
            found.left_out[why] += 1
            return
        replies(self._translator, episode, by_human=chosen.by_human)
        found.episodes.append(chosen)
        found.turns += len(episode.turns)
        found.told_otherwise += episode.instructions != self._told

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


def _lack(run: replay.Run, turns: Sequence[Turn]) -> str | None:
    """Why an episode cannot be taught; None where it can."""
    return next(_lacks(run, turns), None)


def _lacks(run: replay.Run, turns: Sequence[Turn]) -> Iterator[str]:
    if not turns:
        yield "without a turn"
    for turn in turns:
        if turn.action is None:
            yield "with a reply that was no action"
        elif not turn.shown:
            yield "with a screen that was private"
        elif turn.shown.count(IMAGE) != len(turn.frames):
            yield "with a picture that was not recorded"
        elif not all(map(run.has_frame, turn.frames)):
            yield "with a picture that was lost"

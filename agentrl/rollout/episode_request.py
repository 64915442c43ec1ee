"""A request to play one episode, and its ids and seeds."""

from dataclasses import dataclass
from typing import Literal

from agentrl.replay.episode_summary import label_of

Split = Literal["train", "eval", "demo"]
_SPLITS: tuple[Split, ...] = ("train", "eval", "demo")
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(slots=True, kw_only=True, frozen=True)
class EpisodeRequest:
    """One episode to play; a refill is the same request with the next attempt."""

    split: Split
    step: int
    group: int
    member: int
    seed: int
    """Of the environment; shared by the members of a group."""
    attempt: int = 0
    label: str = ""
    """Distinguishes evaluations of the same step; part of the id."""

    @property
    def group_id(self) -> str:
        """Unique id of the group within the run."""
        return f"{label_of(self.label) or self.split}-{self.step:05d}-g{self.group:03d}"

    @property
    def id(self) -> str:
        """Unique id of the episode within the run."""
        retry = f"-r{self.attempt}" if self.attempt else ""
        return f"{self.group_id}-m{self.member:02d}{retry}"

    def player_seed(self, run_seed: int) -> int:
        """Seed of the player's own randomness; the same for all evaluations of one step."""
        split = _SPLITS.index(self.split)
        parts = (run_seed, self.step, self.group, self.member, self.attempt, split)
        mixed = 0
        for part in parts:
            mixed = (mixed * 1_000_003 ^ (part + 1) * _GOLDEN) & (2**63 - 1)
        return mixed

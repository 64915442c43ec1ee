"""Check that an environment and its rewards pay nothing for doing nothing."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from agentrl import event_loop
from agentrl.actions.players.noop_player import NOOP
from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.check.support.open_env import make_as_configured
from agentrl.check.support.random_episodes import SEED
from agentrl.config import EnvConfig, RewardConfig
from agentrl.data.reward_inputs import env_reward
from agentrl.errors import RewardError
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.env_server import CLOSE_S
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rewards.reward_names import asks_a_server
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.runs.failure_modes import reported_success
from agentrl.types import ScoredEpisode

WHAT = "doing nothing"
"""Name of the check."""
_EPISODES = 8
_TOLERANCE = 0.01
"""Difference of mean rewards that is not reported."""
_COMPARED = (NOOP, "random", "expert")
_PENALIZE = "penalize replies without an action (agentrl.rewards.form:action in rewards)"


@dataclass(slots=True, kw_only=True)
class _Record:
    """What a player earned in the valid episodes that it played."""

    rewards: list[float] = field(default_factory=list)
    by_function: dict[str, list[float]] = field(default_factory=dict)
    """Unweighted rewards of each function."""
    successes: int = 0
    took_actions: bool = False
    """True if any reply was an action."""
    error: str = ""
    """Why the last void episode is void."""

    def add(self, scored: ScoredEpisode) -> None:
        """Add a valid episode."""
        turns = scored.episode.turns
        self.rewards.append(scored.reward)
        for name, values in scored.components.items():
            self.by_function.setdefault(name, []).append(float(sum(values)))
        self.successes += bool(turns) and reported_success(turns[-1].info) is True
        self.took_actions |= any(turn.action is not None for turn in turns)

    @property
    def reward(self) -> float:
        """The mean reward of an episode."""
        return fmean(self.rewards)


def check_doing_nothing(
    config: EnvConfig, rewards: Sequence[RewardConfig], budget_s: float
) -> Finding:
    """Doing nothing neither succeeds nor pays.

    The player `noop` is compared with `random` and `expert` on the same seeds. An episode of `noop`
    that succeeds is wrong. So is a reward that does not exceed it when the expert plays, and one
    that is positive although no action was taken. If `noop` earns more than random actions, a
    policy may learn to do nothing, which is a note: time penalties make it so in many games.

    Args:
        config: the environment.
        rewards: the job's rewards; those that call a server are left out.
        budget_s: seconds for all episodes; each player's first may take as long on its own.
    """
    resolved = resolve_env(config)
    called = [reward for reward in rewards if not asks_a_server([reward])]
    if rewards and not called:
        return ok(WHAT, "not checked: the rewards call a server")
    names = [name for name in _COMPARED if name in resolved.players]
    found: dict[str, _Record] = {}
    with RewardFunctions(called, budget_s) as functions:
        for name in names:
            end = time.monotonic() + budget_s / len(names)
            try:
                record = event_loop.run(_play(config, name, functions, end, budget_s))
            except RewardError as error:
                text = f"an episode of {name} cannot be scored: {error}"
                return wrong(WHAT, text, "correct the reward, or what the environment reports")
            if record.rewards:
                found[name] = record
            elif name == NOOP:
                text = f"not checked: its episode is void: {record.error}"
                return note(WHAT, text, "correct the error, or raise --deadline if it is slow")
    return _finding_about(found, steps=open_translator(resolved).no_action() is not None)


def _finding_about(found: dict[str, _Record], *, steps: bool) -> Finding:
    """Return the finding about what the players earned.

    Args:
        found: each player's record, at least that of `noop`.
        steps: whether a reply without an action steps the environment.
    """
    noop, random, expert = (found.get(name) for name in _COMPARED)
    assert noop is not None
    acts = noop.took_actions
    how = "the action that does nothing" if acts else "replies without an action"
    if noop.successes:
        return wrong(
            WHAT,
            f"{noop.successes} of {len(noop.rewards)} episodes of {how} succeed",
            "start episodes where the task is not done yet, and report success only if it is",
        )
    detail = ", ".join(f"{name} {record.reward:.4g}" for name, record in found.items())
    if expert is not None and noop.reward > expert.reward - _TOLERANCE:
        text = f"it pays as much as the expert's play; mean reward: {detail}"
        return wrong(WHAT, text, f"reward what the task asks for, and {_PENALIZE}")
    means = {name: fmean(values) for name, values in noop.by_function.items()}
    for name, mean in means.items():
        # An environment may pay for surviving a step; a reward function, not for an invalid reply.
        may_pay = acts or (steps and name == env_reward.__name__)
        if not may_pay and mean > _TOLERANCE:
            return wrong(
                WHAT,
                f"{name} pays {mean:.4g} per episode for {how}; mean reward: {detail}",
                f"let {name} return 0 or less until the agent has done something",
            )
    if random is not None and noop.reward > random.reward + _TOLERANCE:
        text = f"it pays more than random actions; mean reward: {detail}"
        fix = f"none needed if training starts with good demonstrations; else {_PENALIZE}"
        return note(WHAT, text, fix)
    return ok(WHAT, f"{how}: no success; mean reward: {detail}")


async def _play(
    config: EnvConfig, name: str, functions: RewardFunctions, end: float, first_s: float
) -> _Record:
    """Play and score a player's episodes until `end`, the first in `first_s` seconds at most."""
    resolved = resolve_env(config)
    record, policy = _Record(), ScriptedPolicy(load_player(resolved, name))
    runner = EnvRunner(resolved, None, make=partial(make_as_configured, config))
    with ExitStack() as stack:
        stack.callback(runner.is_closed, CLOSE_S)
        stack.callback(runner.close)
        for number in range(_EPISODES):
            if number and time.monotonic() > end:
                break
            request = EpisodeRequest(
                split="eval", step=0, group=number, member=0, seed=SEED + number, label=name
            )
            left_s = end - time.monotonic() if number else first_s
            limits = EpisodeLimits(max_turns=config.max_turns, deadline_s=max(1.0, left_s))
            episode = await run_episode(
                request, resolved.id, runner, policy, request.player_seed(SEED), limits
            )
            if episode.outcome.void:
                record.error = episode.error or ""
            else:
                record.add(await functions.score_async(episode))
    return record

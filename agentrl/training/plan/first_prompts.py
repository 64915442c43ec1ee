"""Checks that the first prompts of evaluations leave room for a reply, before a job starts."""

from dataclasses import replace

from agentrl.actions.players.noop_player import NOOP
from agentrl.errors import ConfigError, WorldError
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import NO_ROOM
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.training import env_seeds

_SEEDS = 2
"""Number of held-out seeds of each environment: texts differ in length, images do not."""


async def check_first_prompts(rollouts: Rollouts, play: RolloutPlan) -> dict[str, int]:
    """Measure the first prompts of held-out episodes, in each environment and ring of a job.

    The player that does nothing makes one turn per episode, so no engine starts, and nothing is
    recorded. A ring may show larger screens or longer texts than training (`eval.rings`).

    Args:
        rollouts: play the episodes; they have the model's encoder.
        play: the job.

    Returns:
        The longest first prompt in tokens, by environment of the mixture and by ring. What cannot
        be played now is left out, because its evaluation reports the failure.

    Raises:
        ConfigError: a prompt has no room for a reply in `rollout.max_context`.
    """
    settings, longest = play.settings, dict[str, int]()
    seeds = env_seeds.evaluation_seeds(settings.eval, min(_SEEDS, settings.eval.episodes))
    for name in (*play.trained, *play.rings):
        requests = requests_of_step("eval", 0, seeds, 1, "first-prompt", envs=[name] * len(seeds))
        try:
            played = await rollouts.collect(
                [replace(one, opening_turns=1) for one in requests], NOOP
            )
        except WorldError:
            continue
        turns = [turn for scored in played for turn in scored.episode.turns[:1]]
        if turns:
            longest[name] = max(len(turn.prompt_ids) for turn in turns)
            _check_room(play, name, longest[name])
    return longest


def _check_room(play: RolloutPlan, name: str, tokens: int) -> None:
    rollout = play.settings.rollout
    if tokens + rollout.max_new_tokens <= rollout.max_context:
        return
    where = f"mixture, {name}: " if name else ""
    if name in play.rings:
        where = f"eval.rings.{name}={play.settings.eval.ring_kwargs[name]}: "
    raise ConfigError(f"{where}{NO_ROOM} (the first prompt has {tokens} tokens)")

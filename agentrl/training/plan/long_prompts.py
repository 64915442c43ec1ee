"""Finds data set rows whose prompts leave no room for a reply, before a job starts."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.config import EnvConfig, EvalConfig, ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.open_encoder import open_encoder
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.prompt_messages import (
    compose_message,
    instructions_for,
    preceding_for,
)
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.rollout.rollout_plan import PlayTask, RolloutPlan, plan_rollouts

log = logging.getLogger(__name__)

_MAX_LISTED = 5
"""Maximum number of long prompts that a message lists."""


@dataclass(slots=True, kw_only=True, frozen=True)
class _PromptLength:
    row: int
    name: str
    tokens: int


def skip_long_prompts(play: RolloutPlan, folder: Path) -> RolloutPlan:
    """Skip rows whose prompts are too long in all environments, if `on_long` is `skip`.

    Args:
        play: the job.
        folder: the model's folder; only the tokenizer is read.

    Raises:
        ConfigError: rows are too long and may not be skipped, or no other rows are left.
    """
    room = play.settings.rollout.max_context - play.settings.rollout.max_new_tokens
    without_long_rows = partial(
        _without_long_rows, model=play.settings.model, folder=folder, room=room
    )
    env, evaluation = _shortened(play.tasks[""], without_long_rows)
    rings: dict[str, Any] = {}
    for name, ring in play.rings.items():
        rings[name] = evaluation.ring_kwargs[name]
        inherited = {**env.kwargs, **evaluation.kwargs}.get("skip_rows", [])
        own_rows = without_long_rows(ring.held_out).kwargs.get("skip_rows", [])
        if own_rows != inherited:
            rings[name] = {**rings[name], "skip_rows": own_rows}
    if evaluation.rings is not None:
        evaluation = replace(evaluation, rings=replace(evaluation.rings, **rings))
    skipped: dict[str, Any] = {"skip_rows": []} if "skip_rows" in env.kwargs else {}
    mixture = []
    for one in play.settings.mixture:
        own, own_evaluation = _shortened(play.tasks[one.name], without_long_rows)
        # Otherwise, this environment would inherit the skipped rows of the section `env`.
        kwargs = {**({} if one.has_other_id(env) else skipped), **own.kwargs}
        kept = {**one.env, "kwargs": kwargs}
        mixture.append(replace(one, env=kept, eval_kwargs=own_evaluation.kwargs))
    return plan_rollouts(replace(play.settings, env=env, eval=evaluation, mixture=mixture))


def _shortened(
    task: PlayTask, without_long_rows: Callable[[ResolvedEnv], EnvConfig]
) -> tuple[EnvConfig, EvalConfig]:
    env, kwargs = without_long_rows(task.train), dict(task.eval.kwargs)
    if not kwargs:
        return env, task.eval
    if skipped := without_long_rows(task.held_out).kwargs.get("skip_rows"):
        kwargs["skip_rows"] = skipped
    elif "skip_rows" in env.kwargs:
        kwargs["skip_rows"] = []
    return env, replace(task.eval, kwargs=kwargs)


def _without_long_rows(
    env: ResolvedEnv, *, model: ModelConfig, folder: Path, room: int
) -> EnvConfig:
    count, long, settings = 0, [], env.settings
    for prompt in _measured(model, env, folder):
        count += 1
        if prompt.tokens > room:
            long.append(prompt)
    if not long:
        return settings
    listed = "; ".join(f"{one.name}: {one.tokens} tokens" for one in long[:_MAX_LISTED])
    more = f"; and {len(long) - _MAX_LISTED} more" if len(long) > _MAX_LISTED else ""
    what = (
        f"{len(long)} of {count} prompts leave no room for a reply: {listed}{more}. At most "
        f"{room} tokens fit (rollout.max_context - rollout.max_new_tokens)"
    )
    if settings.kwargs.get("on_long", "refuse") != "skip" or len(long) == count:
        raise ConfigError(
            f"{what}. Raise rollout.max_context, lower model.max_pixels, or skip such rows with "
            "env.kwargs.on_long=skip"
        )
    log.warning("%s. They are skipped (on_long=skip)", what)
    rows = {*settings.kwargs.get("skip_rows", ()), *(one.row for one in long)}
    return replace(settings, kwargs={**settings.kwargs, "skip_rows": sorted(rows)})


def _measured(model: ModelConfig, env: ResolvedEnv, folder: Path) -> Iterator[_PromptLength]:
    """Measure the encoded length of each prompt that is known before an episode."""
    if not hasattr(env.entry_point, "first_observations"):
        return
    encoder, translator = open_encoder(model, folder), open_translator(env)
    for first in env.first_observations():
        instructions = instructions_for(env.settings, translator, first.info)
        shown = translator.to_observation(first.observation, first.info)
        message = compose_message(
            env.settings, translator, shown, preceding_for(translator, first.info)
        )
        prompt = Conversation(encoder, instructions).observe(message)
        yield _PromptLength(row=first.row, name=first.name, tokens=len(prompt.token_ids))

"""The prompts with which an engine is compared: a job's first ones, or two of a chat."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentrl.actions.action_chunks import parse_actions
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EnvError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.encode_messages import encode_prompt
from agentrl.policies.configured_image_size import resize_for
from agentrl.replay.plain_json import to_plain
from agentrl.replay.touch_positions import TouchPosition, touch_of_action
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.workers.rollouts_interface import Rollouts
from agentrl.types import IMAGE, Message, Prompt, Split

log = logging.getLogger(__name__)

_TURNS = 2
"""Number of turns of each episode: the second prompt may have two images."""

TouchOf = Callable[[str], TouchPosition | None]
"""Returns where a reply touches the screen; None if it does not."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ComparedPrompt:
    """A prompt whose replies are compared."""

    prompt: Prompt
    touch_of: TouchOf | None = None
    """None if no reply touches a screen, as in a chat."""

    def touch(self, reply: str) -> TouchPosition | None:
        """Return where a reply touches the screen; None if it does not."""
        return None if self.touch_of is None else self.touch_of(reply)


async def opening_prompts(
    rollouts: Rollouts,
    plan: RolloutPlan,
    encoder: ChatEncoder,
    seeds: Sequence[int],
    *,
    split: Split = "eval",
    mixture: Sequence[str] = ("",),
    step: int = 0,
) -> list[ComparedPrompt]:
    """Play the first turns of a few episodes with the model, and return their prompts.

    Args:
        rollouts: play the episodes.
        plan: what they play.
        encoder: the model's encoder.
        seeds: the environment's seeds in this split.
        split: split of the seeds.
        mixture: the environments to play.
        step: number of training steps of the model.
    """
    wanted = plan.settings.rollout.engine_check.prompts
    turns = min(_TURNS, *(plan.env(split, name).settings.max_turns for name in mixture))
    count = max(len(mixture), math.ceil(wanted / turns))
    names = [mixture[number % len(mixture)] for number in range(count)]
    chosen = [seeds[number % len(seeds)] for number in range(count)]
    requests = requests_of_step(split, step, chosen, 1, "engine-check", envs=names)
    played = await rollouts.collect([replace(one, opening_turns=turns) for one in requests])
    touches = {
        name: await asyncio.to_thread(_touch_reader, plan, encoder, split, name) for name in mixture
    }
    return [
        ComparedPrompt(
            prompt=Prompt(token_ids=turn.prompt_ids, images=turn.images), touch_of=touches[name]
        )
        for name, scored in zip(names, played, strict=True)
        for turn in scored.episode.turns
    ]


def _touch_reader(
    plan: RolloutPlan, encoder: ChatEncoder, split: Split, name: str
) -> TouchOf | None:
    """Return a function that finds where a reply touches the screen; None if that is unknown."""
    env, model = plan.env(split, name), plan.settings.model
    try:
        translator = open_translator(env, lambda dialect: resize_for(dialect, model, encoder))
    except ConfigError as error:  # it needs the action space of an environment on a phone
        log.debug("the taps of %s are not compared: %s", env.id, error)
        return None

    def touch(reply: str) -> TouchPosition | None:
        try:
            with boundary(EnvError, f"the translator of {env.id} failed"):
                parsed = parse_actions(translator, reply, env.settings.max_actions_per_reply)
        except EnvError as error:  # it may need its environment's current state
            log.debug("a tap of %s is not compared: %s", env.id, error)
            return None
        return touch_of_action(to_plain(parsed.actions[0]), reply) if parsed.actions else None

    return touch


def chat_prompts(encoder: ChatEncoder, rollout: RolloutConfig) -> list[ComparedPrompt]:
    """Return prompts for a chat, whose questions are not known yet: with two pictures and without.

    Leaves out a prompt for which `rollout.max_context` has no room.
    """
    asked = [Message(role="user", text="Which of the letters in this sentence is the first?")]
    if encoder.model_adapter.image_token_id is not None:
        pictures = (_picture(196, 112), _picture(140, 168))
        asked.append(
            Message(role="user", text=f"{IMAGE}\n{IMAGE}\nWhat do you see?", images=pictures)
        )
    room = rollout.max_context - rollout.max_new_tokens
    prompts = [encode_prompt(encoder, "", [message]) for message in asked]
    return [ComparedPrompt(prompt=one) for one in prompts if len(one.token_ids) <= room]


def _picture(height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[0:height, 0:width]
    red, green = 255 * rows // height, 255 * columns // width
    picture = np.stack([red, green, np.full_like(red, 64)], axis=-1).astype(np.uint8)
    picture[height // 8 : height // 3, width // 2 : width - width // 8] = (250, 250, 250)
    return picture

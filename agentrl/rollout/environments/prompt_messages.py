"""Compose an episode's messages from its translator's output."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.actions.action_chunks import action_tag_of, describe_chunks
from agentrl.actions.state_estimates import describe_estimates
from agentrl.actions.translator import Translator
from agentrl.config import EnvConfig
from agentrl.data.prompt_templates import render_instructions
from agentrl.errors import ConfigError, EnvError, boundary
from agentrl.rollout.environments.state_schemas import state_schema_of
from agentrl.types import Message, Observation, give_images


def instructions_for(
    settings: EnvConfig, translator: Translator, reset_info: Mapping[str, Any] | None = None
) -> str:
    """Return the instructions of an episode, inside the job's prompt template if it has one.

    Unless the translator gives none, they say how to write state estimates and how many actions a
    reply may have, if the job has these.

    Raises:
        ConfigError: the translator fails, or the prompt does not exist or cannot be rendered.
    """
    own = None if reset_info is None else getattr(translator, "system_message", None)
    with boundary(ConfigError, "env.translator_kwargs: instructions() failed"):
        instructions = translator.instructions() if own is None else own(reset_info)
    return _rendered(settings, translator, instructions)


def _rendered(settings: EnvConfig, translator: Translator, instructions: str) -> str:
    most, tag = settings.max_actions_per_reply, action_tag_of(translator)
    schema = state_schema_of(settings)
    if schema is not None and instructions:
        instructions = f"{instructions} {describe_estimates(schema)}"
    if most > 1 and tag is not None and instructions:
        instructions = f"{instructions} {describe_chunks(tag, most)}"
    return render_instructions(settings.prompt, instructions)


def preceding_for(translator: Translator, reset_info: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the earlier questions and replies that an episode's first message continues.

    Raises:
        EnvError: the translator fails, or its messages do not alternate between questions and
            replies.
    """
    find = getattr(translator, "preceding_messages", None)
    if find is None:
        return ()
    with boundary(EnvError, "the translator's preceding_messages()"):
        found = tuple(find(reset_info))
        replies = [message.role == "assistant" for message in found]
        if replies != [False, True] * (len(found) // 2):
            raise ValueError(
                f"returned messages with the roles {[message.role for message in found]}; "
                "questions and replies must alternate, and the last message must be a reply"
            )
    return found


def compose_message(
    settings: EnvConfig,
    translator: Translator,
    observation: Observation,
    preceding: Sequence[Message] = (),
) -> Message:
    """Compose a message, wrapping any system message in the job's prompt template."""
    if preceding:
        preceding, images = give_images(preceding, observation.images)
        observation = replace(observation, images=images)
    message = translator.to_message(observation)
    if message.system is not None:
        message = replace(message, system=_rendered(settings, translator, message.system))
    return replace(message, preceding=tuple(preceding)) if preceding else message

"""The translator between an environment and a model."""

from collections.abc import Mapping
from typing import Any, Protocol

from agentrl.types import Message, Observation


class Translator(Protocol):
    """Converts an environment's observations to model input, and the model's replies to actions.

    Other members are optional: `render_mode`, with which the environment is made;
    `attach_env(env)`, called with the environment before its first reset; `begin_episode()`, called
    before each reset; `answer_format()`, the part of the instructions that explains the reply
    format, which a human player sees if the instructions are empty; `system_message(info)`, an
    episode's system message given the info from reset, which replaces `instructions()`;
    `preceding_messages(info)`, alternating earlier questions and replies that the first message
    continues, without their images, which come first in the observation; `noop_reply()`, the reply
    with the action that does nothing, or None if there is none; `dialect`, an attribute
    that `env.dialect` replaces (`agentrl.actions.dialect`); and `action_tag`, the tag around an
    action, if a reply may contain several actions one after another
    (`agentrl.actions.action_chunks`).
    """

    def instructions(self) -> str:
        """Return the system message, which explains how to play; may be empty."""

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Return the part of an environment's observation that the model sees."""

    def to_message(self, observation: Observation) -> Message:
        """Return the user message; each `<image>` in its text stands for the next image."""

    def to_action(self, reply: str) -> Any:
        """Parse a reply into an action.

        Raises:
            ActionError: the reply is not an action; the environment then receives `no_action`.
        """

    def no_action(self) -> Any:
        """Return the action for a reply that cannot be parsed; None skips the step."""

"""Rewrites recorded turns in the dialect of the job that trains on them."""

import contextlib
import re
from typing import Any

from agentrl.actions.action_chunks import join_actions, read_actions
from agentrl.actions.dialect import Dialect, Resize
from agentrl.errors import ActionError, ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.replay.plain_json import to_plain
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.prompt_messages import compose_message
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.text.formatting import quoted
from agentrl.types import Message, Observation, Turn, without_placeholders

_THOUGHT = re.compile(r"<think(?:ing)?>|^(?:Thought|Reason):([^\n]*)$", re.MULTILINE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")


class DialectRewriter:
    """Writes messages as this job's model would see them, and replies as it would write them.

    Args:
        env: the job's environment, with a dialect.
        encoder: encoder of the job's model, which resizes screens.

    Raises:
        ConfigError: the translator cannot write replies.
    """

    def __init__(self, env: ResolvedEnv, encoder: ChatEncoder) -> None:
        def resize_of(dialect: Dialect) -> Resize:
            return encoder.seen_size

        self._settings, self._most = env.settings, env.settings.max_actions_per_reply
        self.translator: Any = open_translator(env, resize_of)
        self._reader: Any = open_translator(env, resize_of)
        """Translator that only parses recorded replies; `translator` keeps the episode's state."""
        for method in ("see", "to_reply"):
            if not hasattr(self.translator, method):
                raise ConfigError(
                    f"env.dialect={env.settings.dialect}: recorded replies cannot be rewritten, "
                    f"because the translator of {env.id} has no method `{method}`"
                )

    def begin_episode(self) -> None:
        """Forget the turns of the last episode."""
        if (begin_episode := getattr(self.translator, "begin_episode", None)) is not None:
            begin_episode()

    def rewritten(self, message: Message, turn: Turn) -> tuple[Message, str]:
        """Return a turn's rewritten message and reply; a reply that was not an action is kept.

        If a recorded message has screens, only these are used, because its text may be the prompt
        of another dialect.

        Raises:
            ConfigError: the dialect cannot express the action.
        """
        if message.images:
            self.translator.see(message.images)
            self._reader.see(message.images)
        text = "" if message.images else without_placeholders(message.text)
        shown = Observation(images=message.images, text=text)
        written = compose_message(self._settings, self.translator, shown)
        reply = turn.reply
        if turn.parse_error is None and not self._means(reply, turn):
            try:
                reply = self._written(turn)
            except ActionError as error:
                raise ConfigError(
                    f"warm_start.recorded: the dialect {self._settings.dialect} cannot express the "
                    f"recorded action {quoted(turn.action)}: {error}"
                ) from error
        with contextlib.suppress(ActionError):
            read_actions(self.translator, reply, self._most)  # the next prompt may list them
        return written, reply

    def _written(self, turn: Turn) -> str:
        """Write the reply for a turn's actions, with its reasoning before the first."""
        if len(turn.actions) > self._most:
            raise ActionError(f"env.max_actions_per_reply={self._most} is too low")
        first, *others = turn.actions
        replies = [self.translator.to_reply(first, _thought_in(turn.reply))]
        return join_actions(replies + [self.translator.to_reply(action) for action in others])

    def _means(self, reply: str, turn: Turn) -> bool:
        """Return whether a recorded reply already means its actions in this dialect."""
        try:
            actions = to_plain(read_actions(self._reader, reply, self._most))
            return bool(actions[: len(turn.actions)] == list(turn.actions))
        except ActionError:
            return False


def _thought_in(reply: str) -> str:
    """Extract the reasoning from a recorded reply of any dialect; empty without reasoning."""
    last_end = max(reply.rfind("</think>"), reply.rfind("</thinking>"))
    for begins in _THOUGHT.finditer(reply):
        if begins[1] is not None:
            return begins[1].strip()
        if begins.end() <= last_end:
            return _THOUGHT_ENDS.split(reply[begins.end() :], maxsplit=1)[0].strip()
    return ""

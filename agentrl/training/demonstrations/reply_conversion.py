"""Convert recorded replies to the action format of a job."""

from agentrl.actions.translator import Translator
from agentrl.actions.typed_actions import bare_action, parse_typed
from agentrl.errors import ActionError, ConfigError, EnvError, boundary
from agentrl.replay.episode_encoding import to_plain
from agentrl.text.formatting import quoted
from agentrl.types import Episode, Turn


def convert_replies(translator: Translator, episode: Episode, *, by_human: bool) -> list[str]:
    """Return a recorded episode's replies in the action format of this job's translator.

    Replies that were not actions are kept; only a person's replies are converted to another format.

    Raises:
        ConfigError: a reply has a different meaning than when it was recorded.
    """
    return [_reply(translator, episode, turn, by_human) for turn in episode.turns]


def _reply(translator: Translator, episode: Episode, turn: Turn, by_human: bool) -> str:
    with boundary(EnvError, f"the translator's reading of {quoted(turn.reply, 80)}"):
        try:
            reply = turn.reply
            if by_human:
                try:
                    translator.to_action(reply)
                except ActionError:
                    reply = parse_typed(translator, bare_action(reply))
            action = to_plain(translator.to_action(reply))
        except ActionError as error:
            if turn.parse_error is not None:
                return turn.reply
            raise ConfigError(
                f"warm_start.recorded: {episode.id} has the reply {quoted(turn.reply, 80)}, which "
                f"is not an action in this job: {error}. Use the same env.kwargs and "
                "env.translator_kwargs as the recording"
            ) from None
    if turn.parse_error is not None or action != turn.action:
        meant = "no action" if turn.parse_error is not None else quoted(turn.action)
        raise ConfigError(
            f"warm_start.recorded: {episode.id} has the reply {quoted(turn.reply, 80)}, which "
            f"meant {meant} when it was recorded, but means {quoted(action)} in this job. Use the "
            "same env.kwargs and env.translator_kwargs as the recording"
        )
    return reply

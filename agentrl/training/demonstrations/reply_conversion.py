"""Convert recorded replies to the action format of a job."""

from agentrl.actions.action_chunks import read_actions
from agentrl.actions.human_input_parser import bare_action, parse_typed
from agentrl.actions.translator import Translator
from agentrl.errors import ActionError, ConfigError, EnvError, boundary
from agentrl.replay.plain_json import to_plain
from agentrl.text.formatting import quoted
from agentrl.types import Episode, Turn


def convert_replies(
    translator: Translator, episode: Episode, *, by_human: bool, most: int = 1
) -> list[str]:
    """Return a recorded episode's replies in the action format of this job's translator.

    Replies that were not actions are kept; only a person's replies are converted to another format.

    Args:
        translator: translator of this job's environment.
        episode: the recorded episode.
        by_human: whether a person played it.
        most: this job's maximum number of actions in a reply.

    Raises:
        ConfigError: a reply has a different meaning than when it was recorded.
    """
    return [_reply(translator, episode, turn, by_human, most) for turn in episode.turns]


def _reply(translator: Translator, episode: Episode, turn: Turn, by_human: bool, most: int) -> str:
    with boundary(EnvError, f"the translator's reading of {quoted(turn.reply, 80)}"):
        try:
            reply = turn.reply
            if by_human:
                try:
                    read_actions(translator, reply, most)
                except ActionError:
                    reply = parse_typed(translator, bare_action(reply))
            actions = to_plain(read_actions(translator, reply, most))
        except ActionError as error:
            if turn.parse_error is not None:
                return turn.reply
            raise ConfigError(
                f"warm_start.recorded: {episode.id} has the reply {quoted(turn.reply, 80)}, which "
                f"is not an action in this job: {error}. Use the same env.kwargs and "
                "env.translator_kwargs as the recording"
            ) from None
    # If the episode ended, the last actions of its last reply were not executed.
    executed = actions[: len(turn.chunk)] if turn.chunk else actions
    if turn.parse_error is not None or executed != list(turn.actions):
        meant = "no action" if turn.parse_error is not None else quoted(turn.action)
        means = quoted(actions if most > 1 else actions[0])
        raise ConfigError(
            f"warm_start.recorded: {episode.id} has the reply {quoted(turn.reply, 80)}, which "
            f"meant {meant} when it was recorded, but means {means} in this job. Use the "
            "same env.kwargs and env.translator_kwargs as the recording"
        )
    return reply

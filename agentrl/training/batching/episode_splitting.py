"""Conversion of episodes into token sequences.

Token ids are used as sampled, never re-encoded.
"""

from collections.abc import Sequence

from agentrl.types import Episode, TokenSequence, Turn


def split_into_sequences(episode: Episode, index: int = 0) -> list[TokenSequence]:
    """Split an episode into runs of turns whose prompts extend each other.

    With the history layout `concat`, an episode is one sequence; with a window of turns, each turn
    is a sequence. Together, the sequences contain each sampled token of the episode once, in order.

    Args:
        episode: an episode with any number of turns.
        index: index of the episode in its training step.

    Returns:
        The sequences in the order of their turns; empty for a void episode. Runs without sampled
        tokens are skipped.
    """
    if episode.outcome.void:
        return []
    runs: list[list[int]] = []
    for number, turn in enumerate(episode.turns):
        if runs and _extends(episode.turns[runs[-1][-1]], turn):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        _sequence(episode, run, index)
        for run in runs
        if any(episode.turns[number].reply_ids for number in run)
    ]


def _extends(previous: Turn, turn: Turn) -> bool:
    prefix = previous.prompt_ids + previous.reply_ids
    return (
        len(turn.prompt_ids) >= len(prefix)
        and turn.prompt_ids[: len(prefix)] == prefix
        and len(turn.images) >= len(previous.images)
    )


def _sequence(episode: Episode, run: Sequence[int], index: int) -> TokenSequence:
    turns = [episode.turns[number] for number in run]
    for turn in turns:
        assert len(turn.reply_ids) == len(turn.reply_logprobs), "one log-probability per token"
    return TokenSequence(
        token_ids=turns[-1].prompt_ids + turns[-1].reply_ids,
        sampled_positions=tuple(
            len(turn.prompt_ids) + offset for turn in turns for offset in range(len(turn.reply_ids))
        ),
        logprobs=tuple(logprob for turn in turns for logprob in turn.reply_logprobs),
        versions=tuple(version for turn in turns for version in turn.reply_versions),
        turns=tuple(
            number for number, turn in zip(run, turns, strict=True) for _ in turn.reply_ids
        ),
        images=turns[-1].images,
        episode=index,
    )

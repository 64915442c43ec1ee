"""Seeded random episodes of training steps, and their layouts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from agentrl.algorithms.core.trajectories import EpisodeScores, Trajectories, build_trajectories
from agentrl.training.batching.episode_splitting import split_into_sequences
from agentrl.types import Episode, Outcome, ScoredEpisode, TokenScores, TokenSequence, Turn

Groups = list[list[ScoredEpisode]]
GREEDY = 0.25
"""Return of the greedy policy on every seed."""
_EQUAL = 0.25
"""Fraction of groups whose episodes are all equal."""
_NUM_STEPS = 25
_OUTCOMES = (Outcome.TERMINATED, Outcome.TRUNCATED, Outcome.DEVICE_ERROR)


def sample_steps() -> Iterator[Groups]:
    """Draw steps of 1-3 groups of 1-4 episodes; some are void, some groups have equal episodes."""
    for seed in range(_NUM_STEPS):
        rng = np.random.default_rng(seed)
        yield [_group(rng) for _ in range(rng.integers(1, 4))]


def _group(rng: np.random.Generator) -> list[ScoredEpisode]:
    # Equal episodes have a standard deviation of 0, and an algorithm may divide by it.
    members = [_scored(rng) for _ in range(rng.integers(1, 5))]
    return members if rng.random() > _EQUAL else [members[0]] * len(members)


def _scored(rng: np.random.Generator) -> ScoredEpisode:
    size = int(rng.integers(1, 4))
    rewards = (rng.integers(-8, 9, size) / 4).tolist()
    turns = [sample_turn(int(rng.integers(1, 4)), "ab"[rng.integers(2)]) for _ in rewards]
    outcome = _OUTCOMES[rng.choice(3, p=[0.6, 0.2, 0.2])]
    return scored_episode(turns, rewards, outcome)


def sample_turn(num_tokens: int, state_key: str | None) -> Turn:
    """Return a turn whose reply has `num_tokens` tokens."""
    return Turn(
        prompt_ids=(1,),
        reply_ids=tuple(range(2, 2 + num_tokens)),
        reply_logprobs=tuple(-0.1 * (k + 1) for k in range(num_tokens)),
        reply_versions=(0,) * num_tokens,
        reply="",
        images=(),
        shown="",
        frames=(),
        action=None,
        parse_error=None,
        env_reward=0.0,
        state_key=state_key,
    )


def scored_episode(
    turns: Sequence[Turn], rewards: Sequence[float], outcome: Outcome = Outcome.TERMINATED
) -> ScoredEpisode:
    """Return an episode of these turns with their rewards."""
    episode = Episode(
        id="sample",
        env_id="Sample-v0",
        seed=0,
        group="g0",
        member=0,
        reset_info={},
        instructions="",
        turns=tuple(turns),
        final_shown="",
        final_frames=(),
        outcome=outcome,
        error=None,
        device=None,
    )
    # Two reward functions: the integers and the fractions.
    whole = tuple(float(np.floor(reward)) for reward in rewards)
    parts = tuple(reward - floor for reward, floor in zip(rewards, whole, strict=True))
    return ScoredEpisode(
        episode=episode,
        components={"whole": whole, "parts": parts},
        rewards=tuple(rewards),
        weights={"whole": 1.0, "parts": 1.0},
    )


def model_scores(scored: ScoredEpisode) -> EpisodeScores:
    """Return scores of a critic and a reward model for an episode, wherever it is in the step."""
    size = sum(len(turn.reply_ids) for turn in scored.episode.turns)
    # The rewards and the episode's length identify it well enough.
    content = [int(4 * reward) + 100 for reward in scored.rewards] + [size]
    values, implicit, teacher = np.random.default_rng(content).normal(size=(3, size))
    return EpisodeScores(
        values=tuple(values.tolist()),
        last_value=0.5,
        implicit=tuple(implicit.tolist()),
        teacher=tuple(teacher.tolist()),
    )


def trajectories(groups: Groups) -> Trajectories:
    """Return a step's tensors, including everything that an algorithm can require."""
    episodes = [scored for group in groups for scored in group]
    return build_trajectories(groups, list(map(model_scores, episodes)), [GREEDY] * len(groups))


def scores_of_sequences(groups: Groups, sequences: Sequence[TokenSequence]) -> list[TokenScores]:
    """Return the scores of sequences of any layout."""
    whole = [model_scores(scored) for group in groups for scored in group]
    offsets = [0] * len(whole)
    found = []
    for sequence in sequences:
        own, begin = whole[sequence.episode], offsets[sequence.episode]
        offsets[sequence.episode] = end = begin + sequence.num_sampled
        found.append(
            TokenScores(
                old_logprobs=sequence.logprobs,
                reference_logprobs=(-1.0,) * sequence.num_sampled,
                values=own.values[begin:end],
                last_value=own.last_value,
                implicit_logprobs=own.implicit[begin:end],
                teacher_logprobs=own.teacher[begin:end],
            )
        )
    return found


def layouts(groups: Groups) -> Iterator[Groups]:
    """Lay out the same episodes as conversations, windows of two turns, and prompts per turn."""
    for prompts in (_conversation, _window, _apart):
        yield [[_relaid(scored, prompts(scored.episode.turns)) for scored in g] for g in groups]


def num_sequences(groups: Groups) -> int:
    """Return the number of token sequences in a layout."""
    return sum(len(split_into_sequences(one.episode, 0)) for group in groups for one in group)


def _conversation(turns: Sequence[Turn]) -> list[tuple[int, ...]]:
    prompts: list[tuple[int, ...]] = []
    context: tuple[int, ...] = (1,)
    for number, turn in enumerate(turns):
        prompts.append(context)
        context = (*context, *turn.reply_ids, 50 + number)
    return prompts


def _window(turns: Sequence[Turn]) -> list[tuple[int, ...]]:
    before: list[tuple[int, ...]] = [(), *(turn.reply_ids for turn in turns[:-1])]
    return [(1, *reply, 60 + number) for number, reply in enumerate(before)]


def _apart(turns: Sequence[Turn]) -> list[tuple[int, ...]]:
    return [(90 + number,) for number in range(len(turns))]


def _relaid(scored: ScoredEpisode, prompts: Sequence[tuple[int, ...]]) -> ScoredEpisode:
    turns = tuple(
        replace(turn, prompt_ids=prompt)
        for turn, prompt in zip(scored.episode.turns, prompts, strict=True)
    )
    return replace(scored, episode=replace(scored.episode, turns=turns))

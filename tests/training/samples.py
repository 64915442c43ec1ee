"""Small episodes and samples for the tests of the trainer."""

from collections.abc import Sequence

import numpy as np

from agentrl.policies.models import ModelAdapter
from agentrl.types import Episode, Image, Outcome, Sample, ScoredEpisode, Turn


def turn(
    prompt: Sequence[int] = (1,),
    reply: Sequence[int] = (2,),
    *,
    images: tuple[Image, ...] = (),
    state_key: str | None = None,
) -> Turn:
    return Turn(
        prompt_ids=tuple(prompt),
        reply_ids=tuple(reply),
        reply_logprobs=tuple(-0.1 * (k + 1) for k in range(len(reply))),
        reply_versions=(0,) * len(reply),
        reply="",
        images=images,
        shown="",
        frames=(),
        action=None,
        parse_error=None,
        env_reward=0.0,
        state_key=state_key,
    )


def episode(turns: Sequence[Turn], outcome: Outcome = Outcome.TERMINATED) -> Episode:
    return Episode(
        id="e",
        env_id="Toy-v0",
        seed=0,
        group="g",
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


def scored(
    rewards: Sequence[float],
    keys: Sequence[str | None] | None = None,
    outcome: Outcome = Outcome.TERMINATED,
) -> ScoredEpisode:
    keys = keys or [None] * len(rewards)
    played = episode([turn(state_key=key) for key in keys], outcome)
    return ScoredEpisode(episode=played, components={}, rewards=tuple(rewards))


def sample(
    model_adapter: ModelAdapter,
    seed: int,
    *,
    reply: int = 6,
    text: int = 8,
    pictures: int = 1,
    advantage: float | None = None,
    side: int = 28,
) -> Sample:
    """Random tokens after random pictures of 3 by 5 sides of a token, as one turn."""
    rng = np.random.default_rng(seed)
    allowed = [token for token in range(200) if token not in model_adapter.banned_token_ids]
    ids = [int(t) for t in rng.choice(allowed, text)]
    images = tuple(
        rng.integers(0, 255, (5 * side, 3 * side, 3), dtype=np.uint8) for _ in range(pictures)
    )
    for image in images:
        ids += model_adapter.image_markup(image)
    answer = [int(t) for t in rng.choice(allowed, reply)]
    credit = float(rng.normal()) if advantage is None else advantage
    return Sample(
        token_ids=(*ids, *answer),
        places=tuple(range(len(ids), len(ids) + reply)),
        logprobs=tuple(rng.normal(-5.3, 0.1, reply).tolist()),
        advantages=(credit,) * reply,
        images=images,
        turns=(0,) * reply,
        episode=seed,
    )

"""Episodes with images and text, as a model would have played them."""

import numpy as np

from agentrl.policies.models import ModelAdapter
from agentrl.types import Episode, Outcome, ScoredEpisode, Turn


def play(
    model_adapter: ModelAdapter, seed: int, member: int, outcome: Outcome = Outcome.TERMINATED
) -> ScoredEpisode:
    """An episode of three turns; siblings see the same first screen and answer alike at first."""
    shared, own = np.random.default_rng(seed), np.random.default_rng(100 * seed + member)
    allowed = [token for token in range(200) if token not in model_adapter.banned_token_ids]

    def words(rng, count):
        return [int(token) for token in rng.choice(allowed, count)]

    turns, said, images = [], words(shared, 5), ()
    first = words(shared, 2)
    for k in range(3):
        rng = shared if k == 0 else own
        image = rng.integers(0, 255, (56, 84, 3), dtype=np.uint8)
        said, images = [*said, *model_adapter.image_markup(image)], (*images, image)
        reply = [*(first if k == 0 else ()), *words(own, 3)]
        turns.append(
            Turn(
                prompt_ids=tuple(said),
                reply_ids=tuple(reply),
                reply_logprobs=tuple(own.normal(-5.3, 0.3, len(reply)).tolist()),
                reply_versions=(0,) * len(reply),
                reply="", images=images, shown="", frames=(), action=None, parse_error=None,
                env_reward=0.0, state_key=f"{seed}/{k}" if k < 2 else None,
            )
        )  # fmt: skip
        said = [*said, *reply]
    episode = Episode(
        id=f"{seed}-{member}", env_id="Toy-v0", seed=seed, group=str(seed), member=member,
        reset_info={}, instructions="", turns=tuple(turns), final_shown="", final_frames=(),
        outcome=outcome, error=None, device=None,
    )  # fmt: skip
    rewards = tuple(float(n) for n in own.integers(-2, 3, 3))
    return ScoredEpisode(episode=episode, components={}, rewards=rewards)

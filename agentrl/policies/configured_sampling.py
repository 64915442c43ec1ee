"""Sampling parameters that a configuration selects."""

from collections.abc import Sequence

from agentrl.config import RolloutConfig
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import Sampling


def configured_sampling(
    rollout: RolloutConfig,
    encoder: ChatEncoder | None,
    *,
    greedy: bool = False,
    seed: int = 0,
    stop_texts: Sequence[str] = (),
) -> Sampling:
    """Return the sampling parameters of a reply.

    Args:
        rollout: the configured parameters.
        encoder: encodes `rollout.stop`; None for a model behind a server, which takes strings.
        greedy: whether to decode greedily instead.
        seed: see `Sampling`.
        stop_texts: strings that end a reply in addition to `rollout.stop`, where each of them is a
            single token of the model or the model is behind a server.

    Raises:
        ConfigError: a string in `rollout.stop` is not a single token.
    """
    stop_ids = tuple[int, ...]()
    if encoder is not None:
        stop_ids = (*encoder.single_tokens(stop_texts), *encoder.stop_ids(rollout.stop))
    return Sampling(
        temperature=0.0 if greedy else rollout.temperature,
        top_p=rollout.top_p,
        max_new_tokens=rollout.max_new_tokens,
        seed=seed,
        stop_token_ids=stop_ids,
        stop_texts=(*stop_texts, *rollout.stop),
        top_logprobs=rollout.top_logprobs,
    )

"""Compares the taps of an engine's greedy replies with those of transformers' greedy replies."""

import math
import time
from collections.abc import Awaitable, Sequence
from typing import Protocol

from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.training.engine_check.compared_prompts import ComparedPrompt
from agentrl.types import Prompt, Reply, TokenPredictions, TokenSequence

_TAPS_S = 60.0
"""Seconds after which no further tokens of transformers' greedy replies are computed."""


class Predict(Protocol):
    """Predicts sampled tokens with transformers, at `rollout.temperature`."""

    def __call__(self, sequences: Sequence[TokenSequence]) -> Awaitable[Sequence[TokenPredictions]]:
        """Return the predictions of each sequence."""


async def tap_distances(
    tapped: Sequence[tuple[ComparedPrompt, Reply]],
    predictions: Sequence[TokenPredictions],
    predict: Predict,
    encoder: ChatEncoder,
    *,
    length: int,
    near_tie: float,
) -> list[float]:
    """Let transformers reply greedily, too, and return how far its taps are from the engine's.

    Args:
        tapped: the prompts to which the engine replies with a tap, and its greedy replies.
        predictions: transformers' predictions of these replies.
        predict: predicts with transformers.
        encoder: the model's encoder.
        length: maximum number of tokens of a reply.
        near_tie: difference of two tokens' log-probabilities up to which either may be chosen.

    Returns:
        Distances as shares of the screen, of the prompts to which both reply with a tap. Prompts
        whose replies diverge at a near tie are left out.
    """
    replies = [
        _GreedyReply(compared=one, engine_ids=reply.token_ids, predicted=predicted)
        for (one, reply), predicted in zip(tapped, predictions, strict=True)
    ]
    # Each token takes a forward pass of whole prompts, so a slow model is not waited for.
    started = time.monotonic()
    while time.monotonic() - started < _TAPS_S:
        left = [one for one in replies if not one.is_complete]
        if not left:
            break
        following = await predict([one.next_sequence() for one in left])
        for one, predicted in zip(left, following, strict=True):
            one.extend(predicted, encoder.eos_token_ids, length, near_tie)
    distances = (one.distance(encoder) for one in replies)
    return [one for one in distances if one is not None]


class _GreedyReply:
    """An engine's greedy reply, and transformers' greedy reply to the same prompt."""

    def __init__(
        self, *, compared: ComparedPrompt, engine_ids: Sequence[int], predicted: TokenPredictions
    ) -> None:
        self._compared, self._engine_ids, self._predicted = compared, tuple(engine_ids), predicted
        pairs = enumerate(zip(engine_ids, predicted.most_probable, strict=True))
        self._divergence = next((place for place, (one, other) in pairs if one != other), None)
        """The first place at which the replies differ; None if they are equal."""
        self.reference_ids: tuple[int, ...] | None = self._engine_ids
        """transformers' reply so far; None if the replies differ only by a near tie."""
        if (place := self._divergence) is not None:
            self.reference_ids = (*self._engine_ids[:place], predicted.most_probable[place])
        self.is_complete = self._divergence is None

    def next_sequence(self) -> TokenSequence:
        """Return a sequence whose last prediction is the next token."""
        assert self.reference_ids is not None
        tokens = (*self.reference_ids, self.reference_ids[-1])
        reply = Reply(token_ids=tokens, logprobs=(0.0,) * len(tokens), version=0)
        return reply_sequence(self._compared.prompt, reply, 0)

    def extend(
        self, predicted: TokenPredictions, ends: Sequence[int], length: int, near_tie: float
    ) -> None:
        """Append the next token, unless the reply has ended."""
        place = self._divergence
        assert place is not None
        assert self.reference_ids is not None
        if predicted.logprobs[place] - self._predicted.logprobs[place] < near_tie:
            self.reference_ids, self.is_complete = None, True
        elif self.reference_ids[-1] in ends or len(self.reference_ids) >= length:
            self.is_complete = True
        else:
            self.reference_ids = (*self.reference_ids, predicted.most_probable[-1])

    def distance(self, encoder: ChatEncoder) -> float | None:
        """Return the distance of the taps; None if unknown, or if a reply touches nothing."""
        if self.reference_ids is None or not self.is_complete:
            return None
        texts = map(encoder.text, (self._engine_ids, self.reference_ids))
        one, other = map(self._compared.touch, texts)
        if one is None or other is None:
            return None
        return math.hypot(one.x - other.x, one.y - other.y)


def reply_sequence(prompt: Prompt, reply: Reply, index: int) -> TokenSequence:
    """Return a prompt with a sampled reply."""
    start, size = len(prompt.token_ids), len(reply.token_ids)
    return TokenSequence(
        token_ids=(*prompt.token_ids, *reply.token_ids),
        sampled_positions=tuple(range(start, start + size)),
        logprobs=reply.logprobs,
        versions=reply.token_versions,
        turns=(0,) * size,
        images=prompt.images,
        episode=index,
    )

"""Weights with which the losses of tokens are aggregated."""

from collections.abc import Callable, Sequence


def token_weights(
    num_tokens: Sequence[int], episodes: Sequence[int], aggregate: str, constant: float = 1.0
) -> list[float]:
    """Compute the weight of each sample's tokens in the loss over all samples of a step.

    The sum of weighted token losses does not depend on how the samples are split over minibatches,
    micro-batches and ranks. Because a sequence is a whole episode, it does not depend on how
    episodes are split into samples either.

    Args:
        num_tokens: [S] number of sampled tokens of each sample.
        episodes: [S] equal for the samples of one episode.
        aggregate: with n sampled tokens in total, m episodes that have any, and n_e tokens in
            episode e: `token_mean` 1 / n (DAPO, arXiv:2503.14476); `sequence_mean` 1 / (m n_e), the
            mean over episodes of the mean over their tokens (GRPO, arXiv:2402.03300);
            `sequence_sum` 1 / m, the mean of their sums; `constant` 1 / (m * constant) (Dr.GRPO,
            arXiv:2503.20783); `token_sum` 1.
        constant: number of tokens, for `constant`.

    Returns:
        [S]; 0 for a sample without sampled tokens.
    """
    tokens_of_episode: dict[int, int] = {}
    for episode, count in zip(episodes, num_tokens, strict=True):
        tokens_of_episode[episode] = tokens_of_episode.get(episode, 0) + count
    # Episodes without sampled tokens do not count in a mean over episodes.
    total, m = sum(num_tokens), sum(1 for count in tokens_of_episode.values() if count)
    weight_fn: dict[str, Callable[[int], float]] = {
        "token_mean": lambda _: 1 / total,
        "sequence_mean": lambda own: 1 / (m * own),
        "sequence_sum": lambda _: 1 / m,
        "constant": lambda _: 1 / (m * constant),
        "token_sum": lambda _: 1.0,
    }
    return [
        weight_fn[aggregate](tokens_of_episode[episode]) if count else 0.0
        for episode, count in zip(episodes, num_tokens, strict=True)
    ]

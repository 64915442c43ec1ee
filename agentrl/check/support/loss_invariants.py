"""Invariants of every policy loss, as assertions about random tokens.

They are numbered as in docs/algorithms.md.
"""

from collections.abc import Callable

import numpy as np
import torch

from agentrl.algorithms.core.policy_loss import LossInputs, TokenLoss

Loss = Callable[[LossInputs], TokenLoss]
_SEEDS = range(10)


def _sample_tokens(seed: int, spread: float = 0.5) -> LossInputs:
    """Draw the tokens of one to four replies; `spread` is their log-ratios' standard deviation."""
    rng = np.random.default_rng(seed)
    turn = np.repeat(np.arange(rng.integers(1, 5)), rng.integers(1, 5))
    old = rng.uniform(-3, -0.1, len(turn))
    return LossInputs(
        logprobs=torch.tensor(old + rng.normal(0, spread, len(turn))).requires_grad_(),
        old_logprobs=torch.tensor(old),
        advantages=torch.tensor(rng.normal(size=len(turn)) * (rng.random(len(turn)) > 0.1)),
        turn=torch.tensor(turn),
    )


def form_invariant(loss: Loss, *spreads: float) -> None:
    """Each token has a finite loss and gradient, and a bool `clipped`."""
    for tokens in (_sample_tokens(seed, spread) for spread in spreads for seed in _SEEDS):
        result, gradient = _computed(loss, tokens)
        shape = tuple(tokens.logprobs.shape)
        for name, values in (("loss", result.loss), ("clipped", result.clipped)):
            assert tuple(values.shape) == shape, (
                f"{name} must have shape {list(shape)}, one per token, not {list(values.shape)}"
            )
        kind = result.clipped.dtype
        assert kind == torch.bool, f"clipped must be bool, not {kind}"
        assert bool(result.loss.isfinite().all()), f"the loss is not finite: {result.loss.tolist()}"
        assert bool(gradient.isfinite().all()), f"the gradient is not finite: {gradient.tolist()}"


def split_invariant(loss: Loss) -> None:
    """2: splitting a batch between replies changes neither loss nor gradient."""
    for tokens in map(_sample_tokens, _SEEDS):
        whole, gradient = _computed(loss, tokens)
        for turn in set(tokens.turn.tolist()):
            own = tokens.turn == turn
            part, slope = _computed(loss, _taken(tokens, own.nonzero()[:, 0].tolist()))
            for name, found, expected in (
                ("loss", part.loss, whole.loss[own]),
                ("gradient", slope, gradient[own]),
            ):
                difference = float((found - expected).abs().max())
                assert difference < 1e-9, (
                    f"a reply's {name} depends on other replies of its batch, by {difference:.3g}"
                )


def order_invariant(loss: Loss) -> None:
    """5: permuting tokens permutes their losses."""
    for seed in _SEEDS:
        tokens = _sample_tokens(seed)
        order = np.random.default_rng(seed).permutation(len(tokens.turn)).tolist()
        whole, _ = _computed(loss, tokens)
        mixed, _ = _computed(loss, _taken(tokens, order))
        difference = float((mixed.loss - whole.loss[order]).abs().max())
        assert difference < 1e-9, f"losses depend on the order of tokens, by {difference:.3g}"


def idle_invariant(loss: Loss) -> None:
    """Tokens without advantage have no gradient, so samples without any other can be skipped."""
    for tokens in map(_sample_tokens, _SEEDS):
        _, gradient = _computed(loss, tokens)
        idle = gradient[tokens.advantages == 0]
        assert not idle.any(), (
            f"a token with advantage 0 has the gradient {float(idle.abs().max()):.3g}, but samples "
            "in which all advantages are 0 are skipped; set all_tokens = True in the class of the "
            "loss, or requires = Requires(all_tokens=True) in that of the algorithm"
        )


def _taken(tokens: LossInputs, at: list[int]) -> LossInputs:
    return LossInputs(
        # Use a new leaf, so that the gradient comes from this part alone.
        logprobs=tokens.logprobs.detach()[at].requires_grad_(),
        old_logprobs=tokens.old_logprobs[at],
        advantages=tokens.advantages[at],
        turn=tokens.turn[at],
    )


def _computed(loss: Loss, tokens: LossInputs) -> tuple[TokenLoss, torch.Tensor]:
    result = loss(tokens)
    assert isinstance(result, TokenLoss), (
        f"the loss must return TokenLoss(loss=..., clipped=...), not {type(result).__name__}"
    )
    assert result.loss.requires_grad, "the loss has no gradient, since it does not use logprobs"
    (gradient,) = torch.autograd.grad(result.loss.sum(), tokens.logprobs)
    return TokenLoss(loss=result.loss.detach(), clipped=result.clipped), gradient

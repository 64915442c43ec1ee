"""Signs that a training goes wrong while its numbers still look fine.

Each sign is a metric of every step, `watch/<name>`, 1 where it is seen, and a warning when it
begins to be. A window is the mean over so many steps; the first one is what later ones are
compared with.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from agentrl.training.monitoring.eta import TRAINING
from agentrl.training.monitoring.loggers import EVALUATION

WINDOW = 5
"""Steps."""

_COLLAPSED = 0.1
"""Of the entropy of the first window."""
_REPEATED = 0.5
"""Share of a reply's four-token pieces that it has said before."""
_DRIFTED = 2.0
"""Times as long, or as short, as in the first window."""
_FORMAT = 0.9
"""Share of the reward's rise that lies in the format alone."""
_MISMATCH = (10.0, 1e-3)
"""Times that of the first window, and at least so many nats per token (k3)."""
_DEAD = 0.9
"""Share of the groups in which nothing tells siblings apart."""

Numbers = Mapping[str, float]


class Watchdogs:
    """Look at every step of a training, and remember."""

    def __init__(self) -> None:
        self._steps: list[Numbers] = []
        self._evaluations: list[tuple[int, float]] = []
        self._barking: set[str] = set()

    def evaluated(self, reward: float) -> None:
        """The policy as it is now has earned so much on held-out seeds."""
        self._evaluations.append((len(self._steps), reward))

    def recall(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """What an earlier process logged of this training; nobody is warned of it again.

        Args:
            lines: of `metrics.jsonl`.
        """
        for line in lines:
            if line["stage"] == TRAINING:
                self.look(line)
            elif line["stage"] == EVALUATION and "sampled/reward" in line:
                self.evaluated(line["sampled/reward"])

    def look(self, numbers: Numbers) -> tuple[dict[str, float], list[str]]:
        """One more step.

        Args:
            numbers: its metrics, as they are logged.

        Returns:
            `watch/<name>` for each sign, and a sentence for each that was not seen the step before.
        """
        self._steps.append(numbers)
        found = {name: look(self) for name, look in _SIGNS.items()}
        seen = {name for name, words in found.items() if words is not None}
        new = [words for name, words in found.items() if words and name not in self._barking]
        self._barking = seen
        return {f"watch/{name}": float(name in seen) for name in found}, new

    def _windows(self, name: str) -> tuple[float, float] | None:
        """A number's mean over the first and the last steps; None before they are apart."""
        told = [step[name] for step in self._steps if name in step]
        if len(told) < 2 * WINDOW:
            return None
        return fmean(told[:WINDOW]), fmean(told[-WINDOW:])

    def _rise(self, name: str) -> float:
        windows = self._windows(name)
        return 0.0 if windows is None else windows[1] - windows[0]

    def _collapse(self) -> str | None:
        entropy = self._windows("learner/entropy")
        if entropy is None or entropy[1] >= _COLLAPSED * entropy[0]:
            return None
        if self._rise("train/reward") > 0:
            return None  # it has become sure of what is better
        return (
            f"the entropy has fallen from {entropy[0]:.3g} to {entropy[1]:.3g} nats per token, and "
            "the reward has not risen: the policy says the same whatever it sees. A lower optim.lr "
            "may help, algorithm.entropy_coefficient, or algorithm.kl=loss"
        )

    def _repetition(self) -> str | None:
        share = self._windows("rollout/repetition")
        if share is None or share[1] < max(_REPEATED, 2 * share[0]):
            return None
        return (
            f"{share[1]:.0%} of what the replies say repeats what they have said (at first "
            f"{share[0]:.0%}). A lower optim.lr may help, algorithm.kl=loss, or a reward for short "
            "replies (algorithm.overlong_buffer)"
        )

    def _hacking(self) -> str | None:
        """Training rewards rise while those of held-out seeds fall."""
        if len(self._evaluations) < 3:
            return None
        at, best = max(self._evaluations, key=lambda told: told[1])
        later = [reward for place, reward in self._evaluations if place > at]
        rewards = [step.get("train/reward", 0.0) for step in self._steps]
        then, now = rewards[max(0, at - WINDOW) : at], rewards[-WINDOW:]
        if len(later) < 2 or not then or fmean(now) <= fmean(then):
            return None
        if later[-1] >= later[-2] or later[-2] >= best:
            return None
        return (
            f"the reward of training rises ({fmean(then):.3g} to {fmean(now):.3g}) while that of "
            f"held-out seeds falls ({best:.3g} to {later[-1]:.3g}): the policy may have found what "
            "the reward does not mean. agentrl view shows what it does"
        )

    def _length(self) -> str | None:
        tokens = self._windows("rollout/tokens_per_turn")
        if tokens is None or 1 / _DRIFTED < tokens[1] / max(1e-9, tokens[0]) < _DRIFTED:
            return None
        return (
            f"replies have gone from {tokens[0]:.0f} to {tokens[1]:.0f} tokens: see whether the "
            "reward means that"
        )

    def _format(self) -> str | None:
        """The whole rise of the reward lies in how replies are written."""
        names = {
            key for step in self._steps[-1:] for key in step if key.startswith("train/reward/")
        }
        forms = {name for name in names if "format" in name}
        if not forms or forms == names:
            return None
        total, form = self._rise("train/reward"), sum(map(self._rise, forms))
        if total <= 0 or form < _FORMAT * total or self._rise("train/success") > 0:
            return None
        return (
            f"the reward has risen by {total:.3g}, of which {form:.3g} is for the format alone: "
            "the policy has learned how to answer, and not what"
        )

    def _mismatch(self) -> str | None:
        nats = self._windows("learner/mismatch_k3")
        times, least = _MISMATCH
        if nats is None or nats[1] < max(least, times * nats[0]):
            return None
        return (
            f"engine and learner drift apart: {nats[0]:.2g} to {nats[1]:.2g} nats per token. "
            "algorithm.correction=token_truncate weighs what was sampled otherwise"
        )

    def _dead_groups(self) -> str | None:
        told = [step.get("learner/dead_groups", 0.0) for step in self._steps[-WINDOW:]]
        if len(told) < WINDOW or fmean(told) <= _DEAD:
            return None
        return (
            f"in {fmean(told):.0%} of the groups all siblings come out alike, and teach nothing: "
            "the tasks are too easy or too hard for this policy. algorithm.filter_groups=true "
            "plays others in their place"
        )


_SIGNS: Mapping[str, Callable[[Watchdogs], str | None]] = {
    "collapse": Watchdogs._collapse,
    "repetition": Watchdogs._repetition,
    "hacking": Watchdogs._hacking,
    "length": Watchdogs._length,
    "format": Watchdogs._format,
    "mismatch": Watchdogs._mismatch,
    "dead_groups": Watchdogs._dead_groups,
}


def repetition(replies: Iterable[Sequence[int]], size: int = 4) -> float:
    """Share of the pieces of `size` tokens that stand earlier in the same reply; 0 without any."""
    total = repeated = 0
    for reply in replies:
        pieces = [tuple(reply[at : at + size]) for at in range(len(reply) - size + 1)]
        total += len(pieces)
        repeated += len(pieces) - len(set(pieces))
    return repeated / total if total else 0.0

"""Rewards for math answers, compared by math-verify: numbers, LaTeX, sets, intervals, equations."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from agentrl.errors import ConfigError, RewardError
from agentrl.rewards.form import is_think_answer, is_think_boxed
from agentrl.rewards.length import soft_punishment
from agentrl.rewards.math_verify_process import Rule, Verifier

GET_MATH = "pip install 'agentrl-screens[math]'"


class Accuracy:
    r"""1 for an answer that equals the true answer, else 0; a batch function.

    The answer is the last `\boxed{...}`, the text between `<answer>` tags, or else whatever looks
    like an answer in the reply. `unsettled` is 1 if the comparison did not finish in time: an
    answer such as 9^9^9^9 must not block anything, so it counts as wrong.

    Args:
        deadline_s: CPU seconds per answer.

    Raises:
        ConfigError: math-verify is not installed.
    """

    max_batch_size = 16
    """Small enough for a call to end within `rollout.reward_deadline_s` even if all time out."""
    rule: Rule = "math"

    def __init__(self, deadline_s: float = 5.0) -> None:
        if find_spec("math_verify") is None:
            raise ConfigError(f"maths: math-verify is not installed; run: {GET_MATH}")
        self._verifier = Verifier(deadline_s)

    def __call__(self, reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per episode, whose `ground_truth` must be math."""
        pairs = [(inputs["ground_truth"], inputs["response"]) for inputs in reward_inputs]
        return [
            {"error": str(found)} if isinstance(found, RewardError) else self._row(inputs, *found)
            for inputs, found in zip(
                reward_inputs, self._verifier.verify_all(pairs, self.rule), strict=True
            )
        ]

    def _row(
        self, inputs: Mapping[str, Any], accuracy: float, unsettled: float
    ) -> dict[str, float]:
        return {"overall": accuracy, "unsettled": unsettled}


class R1V(Accuracy):
    r"""R1-V's reward: weighted sum of accuracy and format; a batch function.

    math-verify determines the accuracy; an answer that is not math is right if the text is equal.
    Unlike in R1-V's own function, units are ignored, so `140` is right if the answer is `140°`. The
    format is `<think>...</think><answer>...</answer>`, or `<think>` and a `\boxed{...}`.

    Args:
        format_weight: the weight of the format in `overall`, in [0, 1].
        deadline_s: CPU seconds for one answer.
    """

    rule = "words"

    def __init__(self, format_weight: float = 0.5, deadline_s: float = 5.0) -> None:
        super().__init__(deadline_s)
        if not 0 <= format_weight <= 1:
            raise ConfigError(f"format_weight={format_weight}: must lie in [0, 1]")
        self._format = format_weight

    def _row(
        self, inputs: Mapping[str, Any], accuracy: float, unsettled: float
    ) -> dict[str, float]:
        reply = inputs["response"]
        form = float(is_think_answer(reply) or is_think_boxed(reply))
        overall = (1 - self._format) * accuracy + self._format * form
        return {"overall": overall, "accuracy": accuracy, "format": form, "unsettled": unsettled}


class DAPO(Accuracy):
    """DAPO's reward: 1 for a right answer, -1 for a wrong one, less for overlong replies.

    A batch function (arXiv:2503.14476, sections 3.4 and 3.5).

    Args:
        longest: maximum tokens of a reply, usually `rollout.max_new_tokens`.
        buffer: the number of tokens before `longest` over which the punishment grows.
        factor: the punishment at `longest`.
        deadline_s: CPU seconds for one answer.
    """

    def __init__(
        self, longest: int, buffer: int, factor: float = 1.0, deadline_s: float = 5.0
    ) -> None:
        super().__init__(deadline_s)
        soft_punishment(0, longest, buffer)
        self._longest, self._buffer, self._factor = longest, buffer, factor

    def _row(
        self, inputs: Mapping[str, Any], accuracy: float, unsettled: float
    ) -> dict[str, float]:
        overlong = soft_punishment(inputs["response_length"], self._longest, self._buffer)
        return {
            "overall": (2 * accuracy - 1) + self._factor * overlong,
            "accuracy": accuracy,
            "overlong": overlong,
            "unsettled": unsettled,
        }

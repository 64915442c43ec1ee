"""Reward functions that use math-verify with its own timeouts, as in other projects."""

import math_verify
from math_verify.metric import math_metric


def symbolic(completions, solution, **kwargs):
    """Compare with math-verify or, if that fails, as text, like the rewards of several projects."""
    rewards = []
    for completion, true in zip(completions, solution, strict=True):
        said = completion[0]["content"]
        try:
            right = bool(math_verify.verify(math_verify.parse(said), math_verify.parse(true)))
        except Exception:
            right = False
        rewards.append(float(right or said == true))
    return rewards


def metric(data_source, solution_str, ground_truth, extra_info=None):
    """Compare only with math-verify, whose errors count as wrong answers, like veRL's scorer."""
    latex, plain = math_verify.LatexExtractionConfig(), math_verify.ExprExtractionConfig()
    compare = math_metric(gold_extraction_target=(latex,), pred_extraction_target=(plain, latex))
    try:
        score, _ = compare([rf"\boxed{{{ground_truth}}}"], [solution_str])
    except Exception:
        score = 0.0
    return score

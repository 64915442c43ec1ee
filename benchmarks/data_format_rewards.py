"""Short reward functions with the signatures of other trainers, for `data_formats.py`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


def easyr1_boxed(reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Like EasyR1's `math.py`: 0.9 for the boxed answer, 0.1 for the format."""
    rows = []
    for one in reward_inputs:
        right = float(_boxed(one["response"]) == one["ground_truth"])
        form = float(re.match(r"<think>.*</think>.*\\boxed", one["response"]) is not None)
        rows.append({"overall": 0.9 * right + 0.1 * form, "accuracy": right, "format": form})
    return rows


def easyr1_tagged(reward_input: Mapping[str, Any]) -> dict[str, float]:
    """Like EasyR1's `r1v.py`, for one reply: half for the tagged answer, half for the format."""
    right = float(_tagged(reward_input["response"]) == reward_input["ground_truth"])
    form = float(reward_input["response"].startswith("<think>"))
    return {"overall": 0.5 * right + 0.5 * form, "accuracy": right, "format": form}


def easyr1_digit(reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Like EasyR1's `android_gui.py`: the first digit of the reply."""
    found = [(re.search(r"[012]", one["response"]), one["ground_truth"]) for one in reward_inputs]
    return [{"overall": float(digit is not None and digit[0] == gold)} for digit, gold in found]


def easyr1_line(
    reward_inputs: Sequence[Mapping[str, Any]],
    max_response_length: int,
    overlong_buffer_length: int,
    overlong_penalty_factor: float,
) -> list[dict[str, float]]:
    """Like EasyR1's `dapo.py`: 1 or -1 for the line `Answer: ...`, minus a length penalty."""
    rows = []
    for one in reward_inputs:
        right = one["response"].rpartition("Answer: ")[2] == one["ground_truth"]
        over = one["response_length"] - (max_response_length - overlong_buffer_length)
        penalty = overlong_penalty_factor * max(0, over) / overlong_buffer_length
        rows.append({"overall": (1.0 if right else -1.0) - penalty})
    return rows


def verl(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> float:
    """Like veRL's `default_compute_score`: depends on the row's data source."""
    if data_source == "openai/gsm8k":
        return float(solution_str.rpartition("#### ")[2] == ground_truth)
    if data_source == "hiyouga/geometry3k":
        return float(_boxed(solution_str) == ground_truth)
    raise NotImplementedError(data_source)


def trl_accuracy(completions: Sequence[Any], solution: Sequence[str], **_: Any) -> list[float]:
    """Like R1-V's accuracy reward: compare the tagged answers as text."""
    replies = [completion[0]["content"] for completion in completions]
    return [float(_tagged(r) == _tagged(s)) for r, s in zip(replies, solution, strict=True)]


def trl_format(completions: Sequence[Any], **_: Any) -> list[float]:
    """Like R1-V's format reward: tagged thoughts and a tagged answer, nothing else."""
    form = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
    return [float(form.fullmatch(c[0]["content"]) is not None) for c in completions]


def trl_boxed(completions: Sequence[Any], solution: Sequence[str], **_: Any) -> list[float]:
    """Compare the boxed answer as text."""
    replies = [completion[0]["content"] for completion in completions]
    return [float(_boxed(r) == s.strip("$")) for r, s in zip(replies, solution, strict=True)]


def trl_text(completions: Sequence[str], solution: Sequence[str], **_: Any) -> list[float]:
    """Compare the boxed answer of completions that are plain text rather than messages."""
    return [float(_boxed(r) == s.strip("$")) for r, s in zip(completions, solution, strict=True)]


def trl_form(completions: Sequence[Any], **_: Any) -> list[float]:
    """Check for tagged thoughts; uses no column of the row."""
    return [float(c[0]["content"].startswith("<think>")) for c in completions]


def openrlhf_boxed(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any
) -> dict[str, Any]:
    """Compare the boxed answer that follows the prompt."""
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    rewards = [float(_boxed(r) == label) for r, label in zip(responses, labels, strict=True)]
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


def openrlhf_math(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any
) -> dict[str, Any]:
    """Like LMM-R1's `math_verifier`: the label is a box between dollar signs."""
    gold = [str(_boxed(label)) for label in labels]
    return openrlhf_boxed(queries, prompts, gold)


def _tagged(text: str) -> str | None:
    found = re.search(r"<answer>(.*?)</answer>", text)
    return found[1].strip() if found else None


def _boxed(text: str) -> str | None:
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1] if found else None

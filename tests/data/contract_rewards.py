"""Reward functions with the signatures that users of other trainers have."""

import re


def tagged(reply):
    found = re.search(r"<answer>(.*?)</answer>", reply, re.DOTALL)
    return found[1].strip() if found else None


def easyr1_batch(reward_inputs, format_weight=0.1):
    rows = []
    for one in reward_inputs:
        assert one["response_length"] == len(one["response_ids"])
        right = float(tagged(one["response"]) == one["ground_truth"])
        form = float(one["response"].startswith("<think>"))
        overall = (1 - format_weight) * right + format_weight * form
        rows.append({"overall": overall, "format": form, "accuracy": right})
    return rows


def easyr1_columns(reward_inputs):
    """Scores by a column of the row, and the brightness of its pictures."""
    return [
        {
            "overall": float(tagged(one["response"]) == one["ground_truth"]) * one["difficulty"],
            "pictures": len(one["images"]),
            "gray": float(one["images"][0][1, 1, 0]),
        }
        for one in reward_inputs
    ]


def easyr1_sequential(reward_input, format_weight=0.5):
    right = float(tagged(reward_input["response"]) == reward_input["ground_truth"])
    return {"overall": (1 - format_weight) * right, "accuracy": right}


def verl(data_source, solution_str, ground_truth, extra_info=None):
    if data_source == "openai/gsm8k":
        right = solution_str.rpartition("#### ")[2] == ground_truth
    elif data_source == "hiyouga/geometry3k":
        right = f"\\boxed{{{ground_truth}}}" in solution_str
    elif data_source == "searchR1_nq":
        right = tagged(solution_str) in ground_truth["target"]
    else:
        raise NotImplementedError(f"{data_source=}")
    return {"score": float(right), "index": extra_info["index"]}


async def verl_async(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return verl(data_source, solution_str, ground_truth, extra_info)


def trl_accuracy(completions, solution, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    assert set(kwargs) >= {"prompts", "completion_ids", "images"}
    return [
        float(tagged(content) == tagged(gold)) if tagged(gold) else None
        for content, gold in zip(contents, solution, strict=True)
    ]


def trl_format(completions, **kwargs):
    pattern = r"<think>.*?</think>\s*<answer>.*?</answer>"
    return [
        float(bool(re.fullmatch(pattern, completion[0]["content"], re.DOTALL)))
        for completion in completions
    ]


def trl_text(prompts, completions, **kwargs):
    """Of a data set whose prompts are text, so that completions are text too."""
    return [float(c.endswith(p[-1])) for p, c in zip(prompts, completions, strict=True)]


def trl_pictures(prompts, completions, images, **kwargs):
    parts = [part["type"] for message in prompts[0] for part in message["content"]]
    assert parts == ["image", "text"]
    return [float(image[0].size[0]) for image in images]


def trl_of_another_column(completions, answr):
    return [0.0 for _ in completions]


def openrlhf(queries, prompts, labels, **kwargs):
    assert all(q.startswith(p) for q, p in zip(queries, prompts, strict=True))
    rewards = [float(tagged(q) == label) for q, label in zip(queries, labels, strict=True)]
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"seen": rewards}}

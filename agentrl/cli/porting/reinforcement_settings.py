"""Compute settings of reinforcement learning from several settings of another trainer."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.cli.porting.common_settings import (
    as_list,
    combine_intervals,
    combine_model,
    combine_schedule,
)
from agentrl.cli.porting.ported_settings import OPEN, PortedSettings
from agentrl.cli.porting.trl_batches_and_loss import combine_trl
from agentrl.cli.terminal_output import announce
from agentrl.config.defaults_by_name import algorithm_defaults
from agentrl.config.other_trainers import translated
from agentrl.data.open_table import Selection, open_table
from agentrl.errors import ConfigError

_PROMPT_TOKENS = 2048
"""Tokens to allow for a prompt if the file limits only the reply."""
_CONCURRENCY = 256
_GRADER = "agentrl.rewards.maths:Accuracy"
_AUTOMATIC = {
    "problem": ("problem", "question", "prompt", "input", "message", "messages"),
    "answer": ("answer", "solution", "label", "ground_truth"),
    "images": ("images", "image"),
    "messages": ("prompt", "messages", "message"),
}
"""Column names that agentrl detects without `keys`."""
_CORRECTIONS = {"tis": "token_truncate", "icepop": "token_mask", "seq-mask-tis": "sequence_mask"}


def combine_reinforcement(
    settings: PortedSettings, rows: int | None, processes: int | None, *, counts_prompts: bool
) -> None:
    """Complete the settings of a job that trains on a data set of questions.

    Args:
        settings: settings that were translated one by one.
        rows: number of rows of training data; None counts them.
        processes: number of processes TRL would use; None uses the file's.
        counts_prompts: whether TRL is started by a custom script, as in R1-V. Such scripts may use
            a version before 0.16, in which batches count prompts instead of completions.
    """
    settings.ours |= {
        "env.id": "QA-v0",
        # The reward functions compare the reply with the row's answer, so the environment need not.
        "env.kwargs.grade": "none",
        # These data sets' prompts already say how to answer.
        "env.translator_kwargs.instruct": False,
        "env.max_turns": settings.ours.get("env.max_turns", 1),
        "model.dtype": "bfloat16",
    }
    if settings.trainer == "openrlhf":
        settings.ours["algorithm.aggregate"] = "token_mean"
    if settings.trainer == "trl":
        combine_trl(settings, processes, counts_prompts=counts_prompts)
    _rewards(settings)
    _data(settings)
    _lengths(settings)
    _minibatch(settings)
    _kl(settings)
    _loss_and_filter(settings)
    _sampling(settings)
    combine_model(settings)
    combine_intervals(settings)
    _duration(settings, rows)
    combine_schedule(settings, _optimizer_steps(settings.ours))
    _fit_algorithm(settings)


def _rewards(settings: PortedSettings) -> None:
    """Set `rewards`: the file's reward functions, or a comparison with the row's answer."""
    parts, found = settings.parts, list[dict[str, Any]]()
    if "reward_list" in parts:
        names = as_list(parts["reward_list"])
        weights = as_list(parts.get("reward_weights", [1.0] * len(names)))
        if len(weights) != len(names):
            settings.drop("reward_weights", f"needs one weight for each of {len(names)} functions")
            weights = [OPEN] * len(names)
        for name, weight in zip(names, weights, strict=True):
            module, _, function = str(name).rpartition(".")
            found.append({"function": f"{module or 'trl.rewards'}:{function}", "weight": weight})
    elif "reward_url" in parts:
        url = str(parts["reward_url"])
        if url.startswith(("http://", "https://")):
            kwargs = {"url": url}
            if settings.ours.get("env.kwargs.keys.problem") == "message":
                kwargs["prompt_key"] = "message"
            found = [{"function": "agentrl.rewards.remote:OpenRLHF", "kwargs": kwargs}]
        else:
            found = [{"function": f"{url}:reward_func"}]
    elif parts.get("reward"):
        function = str(parts["reward"])
        if ":" not in function:
            function += f":{parts.get('reward_name', 'compute_score')}"
        found = [{"function": function, "kwargs": parts.get("reward_kwargs", {})}]
    else:
        found = [{"function": _GRADER}]
        settings.lose("the trainer's default reward function", f"replaced by {_GRADER}")
    settings.ours["rewards"] = [
        {key: value for key, value in one.items() if value not in ({}, 1.0)} for one in found
    ]


def _data(settings: PortedSettings) -> None:
    """Set the data sets, their columns and the order of their rows."""
    ours, parts = settings.ours, settings.parts
    files = as_list(parts.get("data") or OPEN)
    # The other trainer merges several files into one data set; here each is an environment of a
    # mixture.
    if len(files) == 1:
        ours["env.kwargs.data"] = files[0]
    else:
        ours["mixture"] = [
            {
                "name": f"{Path(one).parent.name or 'data'}_{number}",
                "env": {"kwargs": {"data": one}},
            }
            for number, one in enumerate(files, start=1)
        ]
        settings.drop("data", "merged into one data set there; set mixture weights by row count")
    if len(held_out := as_list(parts.get("eval_data") or [])) == 1:
        ours["eval.kwargs.data"] = held_out[0]
    elif held_out:
        settings.drop("eval_data", "set eval_kwargs for each environment of the mixture")
    is_file = Path(str(files[0])).suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet")
    if "split" in parts and not is_file:
        ours["env.kwargs.split"] = parts["split"]
    for kind, names in _AUTOMATIC.items():
        if ours.get(f"env.kwargs.keys.{kind}") in names:
            settings.drop(f"env.kwargs.keys.{kind}")
    if isinstance(name := ours.get("env.kwargs.name"), list):
        ours["env.kwargs.name"] = name[0]
    ours["env.kwargs.on_long"] = "skip" if parts.get("filter_long") else "refuse"
    if parts.get("shuffle") is False:
        ours["env.kwargs.shuffle"] = None
    elif "seed" in parts:
        ours["env.kwargs.shuffle"] = parts["seed"]


def _lengths(settings: PortedSettings) -> None:
    """Make `max_context` fit prompt and reply, and the micro-batch fit `max_context`."""
    ours, parts = settings.ours, settings.parts
    reply, context = ours.get("rollout.max_new_tokens"), parts.get("context_tokens")
    if context is None and isinstance(reply, int):
        if parts.get("prompt_tokens") is None and not settings.is_unknown("prompt_tokens"):
            settings.lose("prompts of any length", f"limited to {_PROMPT_TOKENS} tokens")
            parts["prompt_tokens"] = _PROMPT_TOKENS
        prompt = settings.number("prompt_tokens")
        context = None if prompt is None else reply + prompt
    ours["rollout.max_context"] = OPEN if context is None else context
    micro_batch = settings.number("train.micro_batch_tokens", 16384)
    if isinstance(context, int) and micro_batch is not None and micro_batch < context:
        ours["train.micro_batch_tokens"] = context


def _minibatch(settings: PortedSettings) -> None:
    """Set the samples per optimizer step, and how many episodes are played at once."""
    ours = settings.ours
    size, groups = ours.get("rollout.group_size"), ours.get("rollout.groups")
    if settings.is_given("minibatch_prompts"):
        prompts = settings.number("minibatch_prompts")
        is_known = prompts is not None and isinstance(size, int)
        ours["algorithm.minibatch"] = prompts * size if is_known else OPEN
    if isinstance(size, int) and isinstance(groups, int):
        ours["rollout.concurrency"] = min(size * groups, _CONCURRENCY)
        minibatch = ours.get("algorithm.minibatch")
        if isinstance(minibatch, int) and minibatch >= size * groups:
            settings.drop("algorithm.minibatch")


def _kl(settings: PortedSettings) -> None:
    """Set where the KL penalty is added, its coefficient and its estimator."""
    ours, parts = settings.ours, settings.parts
    in_loss = parts.get("kl_in_loss", "kl_loss_coefficient" in parts)
    in_reward = parts.get("kl_in_reward", not in_loss)
    coefficient = parts.get("kl_coefficient")
    if in_loss:
        coefficient = parts.get("kl_loss_coefficient", coefficient)
    if parts.get("kl_off") or not coefficient or not (in_loss or in_reward):
        settings.drop("algorithm.kl.horizon")
        return
    estimate = translated("algorithm.kl.estimate", parts.get("kl_estimate", "k3"))
    if in_loss:
        estimate = translated("algorithm.kl.estimate", parts.get("kl_loss_estimate", estimate))
    elif estimate != "k1":
        settings.drop("kl_estimate", "only k1 gives the KL gradient if added to the reward")
        estimate = "k1"
    ours |= {
        "algorithm.kl.add_to": "loss" if in_loss else "reward",
        "algorithm.kl.coefficient": coefficient,
        "algorithm.kl.estimate": estimate,
    }
    if parts.get("kl_target") is not None and parts.get("kl_type", "adaptive") == "adaptive":
        ours["algorithm.kl.target"] = parts["kl_target"]
    else:
        settings.drop("algorithm.kl.horizon")


def _loss_and_filter(settings: PortedSettings) -> None:
    """Set the clip range of the ratio, the importance correction, and which groups to replace."""
    ours, parts = settings.ours, settings.parts
    low, high = _pair(settings, "clip_pair") or (parts.get("clip"),) * 2
    for key, value in (("algorithm.loss.clip_low", low), ("algorithm.loss.clip_high", high)):
        if value is not None and ours.get(key) is None:
            ours[key] = value
    if parts.get("correction"):
        low, high = _pair(settings, "correction_pair") or (0.5, 5.0)
        ours |= {
            "algorithm.importance_correction.kind": _CORRECTIONS[
                parts.get("correction_type", "tis")
            ],
            "algorithm.importance_correction.low": low,
            "algorithm.importance_correction.high": high,
        }
    if not parts.get("filter"):
        settings.drop("algorithm.sampling.refills", "no groups are filtered, so none are replaced")
    elif "filter_low" in parts:
        ours["algorithm.sampling.filter_means"] = [parts["filter_low"], parts["filter_high"]]
    else:
        ours["algorithm.sampling.filter_groups"] = True
        if parts.get("filter_pair") not in (None, [0, 1]):
            ours["algorithm.sampling.filter_means"] = parts["filter_pair"]


def _pair(settings: PortedSettings, name: str) -> list[Any] | None:
    """Return a part that must be a list of two; None if it is missing or invalid."""
    found = settings.parts.get(name)
    if found and not (isinstance(found, list) and len(found) == 2):
        settings.drop(name, "must be a list of two numbers")
    return settings.parts.get(name)


def _sampling(settings: PortedSettings) -> None:
    """Drop sampling settings that training, or a shared GPU, does not allow."""
    parts = settings.parts
    if parts.get("top_p", 1) != 1:
        settings.drop("top_p", "training needs the probabilities of all tokens")
    if parts.get("engine_parallel", 1) != 1:
        settings.drop(
            "engine_parallel",
            "an engine that shares its GPU with the learner uses one GPU; to use more, set "
            "rollout.place=apart and rollout.engine_kwargs.tensor_parallel_size",
        )


def _duration(settings: PortedSettings, rows: int | None) -> None:
    """Compute the number of steps from the number of epochs."""
    ours, parts = settings.ours, settings.parts
    if ours.get("train.steps") is not None:
        return
    epochs, groups = settings.number("epochs", 1), settings.number("rollout.groups")
    if rows is None and isinstance(groups, int) and "env.kwargs.data" in ours:
        rows = _count_rows(ours["env.kwargs.data"], ours.get("env.kwargs.split"))
    if rows is None or not groups or epochs is None:
        ours["train.steps"] = OPEN
        size = ours.get("rollout.groups", OPEN)
        what = f"{parts.get('epochs', OPEN)} * (rows // {size})"
        settings.drop("epochs", f"train.steps={what}; set --rows N")
    else:
        ours["train.steps"] = max(1, int(epochs * (rows // groups)))


def _count_rows(data: str, split: str | None) -> int | None:
    """Count the rows of the training data; None if the data cannot be read on this machine."""
    announce(f"counting the rows of {data}")
    try:
        return len(open_table(str(data), Selection(split=split)))
    except ConfigError as error:
        announce(f"cannot count the rows: {error}")
        return None


def _optimizer_steps(ours: Mapping[str, Any]) -> int | None:
    """Return the total number of optimizer steps; None if it cannot be known."""
    steps, per_step = ours["train.steps"], ours.get("algorithm.epochs", 1)
    if not isinstance(per_step, int):
        return None
    if (minibatch := ours.get("algorithm.minibatch")) is not None:
        samples = ours["rollout.groups"], ours["rollout.group_size"], minibatch
        if not all(isinstance(number, int) for number in samples):
            return None
        per_step *= -(-samples[0] * samples[1] // samples[2])
    return steps * per_step if isinstance(steps, int) else None


def _fit_algorithm(settings: PortedSettings) -> None:
    """Drop settings that neither the algorithm nor its loss has."""
    ours = settings.ours
    name = ours.setdefault("algorithm.name", "grpo")
    # Without division by the standard deviation, GRPO is Dr. GRPO (arXiv:2503.20783).
    if name == "grpo" and str(settings.parts.get("scale", "group")).lower() in ("none", "false"):
        name = ours["algorithm.name"] = "dr_grpo"
    loss = ours.get("algorithm.loss.name")
    try:
        known = asdict(algorithm_defaults(name, loss))
    except ConfigError as error:
        # The algorithm or loss exists only in the other trainer.
        for key in ("algorithm.name", "algorithm.loss.name"):
            settings.drop(key, str(error))
        for key in [key for key in ours if key.startswith("algorithm.critic.")]:
            settings.drop(key, "the algorithm is unknown and may have no critic")
        name = ours["algorithm.name"] = OPEN
        return
    for key in [key for key in ours if key.startswith("algorithm.")]:
        tree: Any = known
        for part in key.split(".")[1:]:
            tree = tree.get(part, OPEN) if isinstance(tree, dict) else OPEN
        if tree is OPEN:
            settings.drop(key, f"algorithm={name} with loss={known['loss']['name']} has no {key}")

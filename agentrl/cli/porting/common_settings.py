"""Compute settings that all kinds of jobs have from several settings of another trainer."""

from typing import Any

from agentrl.cli.porting.ported_settings import PortedSettings


def combine_model(settings: PortedSettings) -> None:
    """Complete the settings of precision, adapters and the runs folder."""
    ours, parts = settings.ours, settings.parts
    if str(parts.get("low_precision")) in ("bf16", "bfloat16", "adamw_bf16"):
        ours["train.master_dtype"] = "bfloat16"
    settings.drop("output", "runs are stored in run.dir, which defaults to runs")
    # 16 is TRL's default.
    rank = parts.get("lora", 16 if parts.get("use_peft") else 0)
    if not rank or parts.get("use_peft", True) is False:
        settings.drop("model.lora.alpha")
        return
    ours["model.lora.rank"] = rank
    targets = parts.get("lora_targets", "all-linear")
    names = targets if isinstance(targets, list) else str(targets).split(",")
    if names != ["all-linear"]:
        ours["model.lora.targets"] = [name.strip(" ,") for name in names]


def combine_intervals(settings: PortedSettings) -> None:
    """Complete the loggers, and intervals whose value for "never" differs."""
    ours = settings.ours
    if ours.get("eval.every") == -1:
        ours["eval.every"] = 0
    for key in ("checkpoint.every", "checkpoint.keep", f"{settings.section}.eval_every"):
        if ours.get(key) == -1:
            settings.drop(key)
    warmup = settings.number("algorithm.critic.warmup_steps")
    if warmup is not None and warmup <= 0:
        settings.drop("algorithm.critic.warmup_steps")
    if (loggers := ours.get("logging")) is not None:
        known = ("console", "file", "none", "all")
        # `NAME?` skips a logger whose library is not installed.
        extra = [f"{name}?" for name in as_list(loggers) if name not in known]
        ours["logging"] = ["console", "file", *extra]


def combine_schedule(settings: PortedSettings, steps: int | None) -> None:
    """Complete the warmup and decay of the learning rate.

    Args:
        settings: settings that were translated one by one.
        steps: number of optimizer steps; None if unknown.
    """
    ours, parts = settings.ours, settings.parts
    kind, ratio = str(parts.get("schedule", "constant")), parts.get("warmup_ratio")
    # If the number of steps is negative, veRL uses the ratio instead.
    if (settings.number("optim.lr_warmup_steps") or 0) < 0:
        settings.drop("optim.lr_warmup_steps")
    if kind in ("cosine", "cosine_with_min_lr", "linear"):
        ours["optim.lr_schedule"] = kind.partition("_")[0]
        least = parts.get("min_lr_ratio") if kind != "linear" else None
        ours["optim.lr_final_ratio"] = least or 0.0
    elif not kind.startswith("constant"):
        settings.drop("schedule", "optim.lr_schedule must be linear or cosine")
    if ratio and steps is not None:
        ours["optim.lr_warmup_steps"] = round(ratio * steps)
    elif ratio:
        settings.lose(
            f"{settings.theirs('warmup_ratio')}={ratio}",
            "set optim.lr_warmup_steps to this fraction of all optimizer steps",
        )


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]

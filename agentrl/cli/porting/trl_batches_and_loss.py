"""Compute settings from TRL's batch sizes and losses."""

from agentrl.cli.porting.ported_settings import OPEN, PortedSettings

_AGGREGATES = {
    "grpo": "sequence_mean", "sapo": "sequence_mean", "dr_grpo": "constant",
    "dapo": "token_mean", "bnpo": "token_mean", "cispo": "token_mean",
}  # fmt: skip


def combine_trl(settings: PortedSettings, processes: int | None, *, counts_prompts: bool) -> None:
    """Complete the settings of groups, minibatches and the loss.

    Args:
        settings: settings that were translated one by one.
        processes: number of training processes; None uses the file's.
        counts_prompts: whether batch sizes may count prompts instead of completions.
    """
    _batches(settings, processes, counts_prompts=counts_prompts)
    _entropy_control(settings)
    # TRL's `loss_type` selects the aggregation, and sometimes also the loss.
    ours, kind = settings.ours, str(settings.parts.get("trl_loss", OPEN))
    if kind not in _AGGREGATES:
        settings.drop("trl_loss", f"must be one of {', '.join(_AGGREGATES)}")
        ours["algorithm.aggregate"] = OPEN
        return
    ours["algorithm.aggregate"] = _AGGREGATES[kind]
    if kind in ("cispo", "sapo"):
        ours["algorithm.loss.name"] = kind
    elif settings.parts.get("trl_level") == "sequence":
        ours["algorithm.loss.name"] = "gspo"


def _entropy_control(settings: PortedSettings) -> None:
    ours, parts = settings.ours, settings.parts
    if parts.get("adaptive_entropy") is True:
        ours["algorithm.entropy_control.target"] = parts.get("entropy_target", 0.2)
        ours["algorithm.entropy_control.step"] = parts.get("entropy_step")
        ours["algorithm.entropy_control.max"] = parts.get("entropy_max")


def samples_per_step(settings: PortedSettings, processes: int | None) -> int | None:
    """Return the samples of all processes per optimizer step; None if unknown."""
    per_device, accumulation = settings.number("per_device"), settings.number("accumulation")
    if per_device is None or accumulation is None:
        return None
    number = processes if processes is not None else settings.number("devices")
    if number is None:
        settings.lose("the number of processes", "1 is assumed; set it with --processes N")
    return int(per_device * accumulation * (number or 1))


def _batches(settings: PortedSettings, processes: int | None, *, counts_prompts: bool) -> None:
    """Set the groups per step and the minibatch size from TRL's batch sizes."""
    ours, step = settings.ours, samples_per_step(settings, processes)
    size, accumulation = settings.number("rollout.group_size"), settings.number("accumulation")
    ours["algorithm.minibatch"] = ours["rollout.groups"] = OPEN
    if step is None or not size or not accumulation:
        return
    # TRL generates completions for `generation_steps` micro-batches at once; an optimizer step
    # uses `accumulation` of them.
    repeated = settings.number("generation_steps", accumulation)
    completions = settings.number(
        "generation_batch", None if repeated is None else step * (repeated // accumulation)
    )
    ours["algorithm.minibatch"] = step
    if completions is None:
        return
    ours["rollout.groups"] = max(1, completions // size)
    if counts_prompts:
        settings.lose(
            f"per_device_train_batch_size={settings.parts['per_device']}",
            "assumed to count completions, as since TRL 0.16; if it counts prompts, as in R1-V, "
            f"set rollout.groups={completions} and algorithm.minibatch=null",
        )
    if (steps := settings.number("optimizer_steps", -1) or 0) > 0:
        ours["train.steps"] = max(1, steps * step // (ours["rollout.groups"] * size))

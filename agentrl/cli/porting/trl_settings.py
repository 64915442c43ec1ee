"""Settings that follow from TRL's batches and losses."""

from agentrl.cli.porting.ported_settings import OPEN, PortedSettings

_AGGREGATES = {
    "grpo": "sequence_mean", "sapo": "sequence_mean", "dr_grpo": "constant",
    "dapo": "token_mean", "bnpo": "token_mean", "cispo": "token_mean",
}  # fmt: skip


def combine_trl(settings: PortedSettings, processes: int | None, *, counts_prompts: bool) -> None:
    """Complete groups, minibatches and the loss.

    Args:
        settings: with what is translated one by one.
        processes: that would train; None takes those in the file.
        counts_prompts: whether batches may count prompts instead of completions.
    """
    _batches(settings, processes, counts_prompts=counts_prompts)
    _loss(settings)


def processes_of(settings: PortedSettings, processes: int | None) -> int:
    """The processes that TRL would train with; one, if neither the file nor the user says."""
    number = settings.parts.get("devices", processes)
    if number is None:
        settings.lose("the number of processes", "1 is assumed; set it with --processes N")
    return number or 1


def _batches(settings: PortedSettings, processes: int | None, *, counts_prompts: bool) -> None:
    """Groups and minibatches, from completions per process."""
    ours, parts, size = settings.ours, settings.parts, settings.ours["rollout.group_size"]
    step = parts["per_device"] * parts["accumulation"] * processes_of(settings, processes)
    repeated = parts.get("generation_steps", parts["accumulation"]) // parts["accumulation"]
    completions = parts.get("generation_batch", step * repeated)
    ours["rollout.groups"] = max(1, completions // size)
    ours["algorithm.minibatch"] = step
    if counts_prompts:
        settings.lose(
            f"per_device_train_batch_size={parts['per_device']}",
            "assumed to count completions, as in TRL since 0.16; if it counts prompts, as in R1-V, "
            f"set rollout.groups={completions} and algorithm.minibatch=null",
        )
    if (steps := parts.get("optimizer_steps", -1)) > 0:
        ours["train.steps"] = max(1, steps * step // (ours["rollout.groups"] * size))


def _loss(settings: PortedSettings) -> None:
    """`loss_type` selects the aggregation, and sometimes the loss."""
    ours, kind = settings.ours, str(settings.parts["trl_loss"])
    if kind not in _AGGREGATES:
        settings.drop("trl_loss", f"must be one of {', '.join(_AGGREGATES)}")
        ours["algorithm.aggregate"] = OPEN
        return
    ours["algorithm.aggregate"] = _AGGREGATES[kind]
    if kind in ("cispo", "sapo"):
        ours["algorithm.loss.name"] = kind
    elif settings.parts.get("trl_level") == "sequence":
        ours["algorithm.loss.name"] = "gspo"

"""Compute settings of jobs on data sets from several settings of another trainer."""

from agentrl.cli.porting.common_settings import combine_intervals, combine_model, combine_schedule
from agentrl.cli.porting.ported_settings import OPEN, PortedSettings
from agentrl.cli.porting.trl_batches_and_loss import samples_per_step

_SHARED = ("seed", "model", "optim", "train", "checkpoint", "logging")
"""Sections that jobs on data sets have in addition to their own."""


def combine_offline(settings: PortedSettings, processes: int | None) -> None:
    """Complete the settings of supervised fine-tuning, preferences or a reward model.

    Args:
        settings: settings that were translated one by one.
        processes: number of processes TRL would use; None uses the file's.
    """
    ours, parts, section = settings.ours, settings.parts, settings.section
    ours["model.dtype"] = "bfloat16"
    for key in [key for key in ours if key.partition(".")[0] not in (*_SHARED, section)]:
        settings.drop(key, f"{section} has no {key}")
    if settings.is_given("per_device"):
        size = samples_per_step(settings, processes)
        ours[f"{section}.batch"] = OPEN if size is None else size
    if isinstance(name := ours.get(f"{section}.train.name"), list):
        ours[f"{section}.train.name"] = name[0]
    # In other trainers, -1 steps means that the number of epochs determines the steps.
    if ours.get(f"{section}.steps") == -1:
        settings.drop(f"{section}.steps")
    loss = parts.get("job_loss", "sigmoid")
    if section == "dpo" and (parts.get("job_ipo") or loss in ("ipo", ["ipo"])):
        ours["dpo.loss"] = "ipo"
    elif section == "dpo" and loss not in ("sigmoid", ["sigmoid"]):
        settings.drop("job_loss", "dpo.loss must be dpo, ipo or simpo")
    # Other trainers truncate long rows, which would cut off the end of the reply.
    ours[f"{section}.on_long"] = "skip"
    combine_model(settings)
    combine_intervals(settings)
    combine_schedule(settings, None)

"""`agentrl port`: convert a configuration of EasyR1, veRL, TRL or OpenRLHF."""

import re
from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.text.name_suggestions import known_names

TRAINERS = ("easyr1", "verl", "trl", "openrlhf")
_SECTIONS = {"train": "train", "sft": "sft", "dpo": "dpo", "reward": "reward_model"}
"""Our section of settings for each kind of job."""
_COMMANDS = {"train": "train", "sft": "sft", "dpo": "dpo", "reward": "train-reward-model"}
_JOB_IN_COMMAND = re.compile(
    r"train_(sft|dpo|rm)\b|\b(sft|dpo|reward)(?:_\w+)?\.py$|^(sft|dpo|reward)$"
)


def port(
    trainer: Annotated[str, typer.Argument(help="`easyr1`, `verl`, `trl` or `openrlhf`.")],
    file: Annotated[
        Path, typer.Argument(help="The trainer's YAML file, or a shell script that starts a job.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the YAML to this file instead of printing it.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="`train`, `sft`, `dpo` or `reward`; default: inferred from the script."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of training data, to convert epochs to steps; default: counted."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Number of processes that TRL would use; default: the file's."),
    ] = None,
) -> None:
    """Convert another trainer's configuration, and list the settings that have no counterpart.

    Example: agentrl port easyr1 examples/qwen2_5_vl_7b_geo3k_grpo.sh --out geo3k.yaml
    """
    if out is not None and out.exists():
        raise ConfigError(f"{out} already exists; choose a different file")
    text, kind, lost = ported(trainer, file, job=job, rows=rows, processes=processes)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(out, text)
    typer.echo(f"wrote {out}; its header lists {lost} settings without a counterpart")
    suggest((_COMMANDS[kind], out, "--dry-run"))


def ported(
    trainer: str,
    file: Path,
    *,
    job: str | None = None,
    rows: int | None = None,
    processes: int | None = None,
) -> tuple[str, str, int]:
    """Return the YAML, the kind of job, and the number of settings without a counterpart.

    Raises:
        ConfigError: the trainer or job is unknown, or the file cannot be read.
    """
    from agentrl.cli.porting.offline_settings import combine_offline
    from agentrl.cli.porting.ported_settings import PortedSettings
    from agentrl.cli.porting.reinforcement_settings import combine_reinforcement
    from agentrl.cli.porting.settings_reader import read_settings
    from agentrl.config.other_trainers import other_trainers

    if trainer not in TRAINERS:
        raise ConfigError(f"{trainer}: no such trainer{known_names(trainer, TRAINERS)}")
    if job is not None and job not in _SECTIONS:
        raise ConfigError(f"--job {job}: no such job{known_names(job, _SECTIONS)}")
    tables = [one for one in other_trainers().values() if one.name in (trainer, f"{trainer}_data")]
    given, words = read_settings(file, tables)
    kind = job or _job_of(words, re.compile("|".join(one.launch for one in tables)))
    if kind != "train" and len(tables) == 1:
        raise ConfigError(f"--job {kind}: only --job train can be converted from {trainer}")
    # The first table is for reinforcement learning, the second for jobs on data sets.
    table = tables[0 if kind == "train" else 1]
    settings = PortedSettings(trainer=trainer, section=_SECTIONS[kind])
    settings.take_all(table, given)
    if kind == "train":
        counts_prompts = any(word.endswith(".py") for word in words)
        combine_reinforcement(settings, rows, processes, counts_prompts=counts_prompts)
    else:
        combine_offline(settings, processes)
    title = f"# Converted from {trainer}'s {file.name} by agentrl port.\n"
    return title + settings.text(), kind, len(settings.lost)


def _job_of(words: list[str], launch: re.Pattern[str]) -> str:
    """Infer the kind of job from the command's module or script, or the argument after `trl`."""
    start = next((index for index, word in enumerate(words) if launch.search(word)), 0)
    matches = filter(None, map(_JOB_IN_COMMAND.search, words[start : start + 2]))
    name = next((one for match in matches for one in match.groups() if one), "train")
    return "reward" if name == "rm" else name

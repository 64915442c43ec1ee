"""`agentrl merge`: a checkpoint as an ordinary model."""

from pathlib import Path
from typing import Annotated

import typer

from agentrl.errors import ConfigError


def merge(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path, typer.Argument(help="A new folder, in the Hugging Face format.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(help="`best`, `last` or a step; else the best, or the last without one."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="`float32` or `bfloat16`; else the run's own.")
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Only the adapters of `model.lora`, for PEFT and vLLM."),
    ] = False,
) -> None:
    """Write a checkpoint's model for transformers, vLLM and others."""
    if out.exists():
        raise ConfigError(f"{out}: exists; name a new folder")
    if dtype not in (None, "float32", "bfloat16"):
        raise ConfigError(f"--dtype {dtype}: must be float32 or bfloat16")
    if adapter and dtype is not None:
        raise ConfigError("--dtype goes without --adapter: adapters stay as they were trained")
    from agentrl.training.run_target import merged

    step = merged(run, out, checkpoint, dtype, adapter)
    what = "adapters" if adapter else "model"
    typer.echo(f"wrote {out}: the {what} after step {step}")

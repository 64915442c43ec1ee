"""`agentrl merge`: export a checkpoint in the Hugging Face format."""

from pathlib import Path
from typing import Annotated

import typer

from agentrl.cli.terminal import suggest
from agentrl.errors import ConfigError


def merge(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Argument(help="A new folder for the model.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(help="`best`, `last` or a step; default: the last, as in agentrl eval."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="`float32` or `bfloat16`; default: the run's own.")
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Export only the LoRA adapters, for PEFT and vLLM."),
    ] = False,
) -> None:
    """Export a checkpoint as a model for transformers, vLLM and others.

    Example: agentrl merge runs/NAME my-model --dtype bfloat16
    """
    if out.exists():
        raise ConfigError(f"{out} exists; name a new folder")
    if dtype not in (None, "float32", "bfloat16"):
        raise ConfigError(f"--dtype {dtype}: must be float32 or bfloat16")
    if adapter and dtype is not None:
        raise ConfigError("--dtype and --adapter exclude each other: adapters keep their precision")
    from agentrl.training.run_target import export_checkpoint

    step = export_checkpoint(run, out, checkpoint, dtype, adapter)
    what = "adapters" if adapter else "model"
    typer.echo(f"wrote {out}: the {what} after step {step}")
    suggest(("eval", run) if adapter else ("eval", run / "config.yaml", f"model.path={out}"))

"""`agentrl export`, `pairs` and `merge`: write a run's episodes or model to files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentrl.cli.command_completion import complete_run
from agentrl.cli.recordings.episodes import (
    LabelOption,
    MinRewardOption,
    RunArgument,
    SplitOption,
    StepOption,
    SuccessOption,
)
from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize, printable

if TYPE_CHECKING:
    from agentrl.replay import Filter, Run

_DATA_SUFFIXES = (".parquet", ".csv", ".jsonl", "")
_OutArgument = Annotated[
    Path,
    typer.Argument(
        help="For one episode: FILE.html, .gif, .mp4 or .png. For a group or the whole run: "
        "FILE.html. For data: FILE.parquet, .csv or .jsonl, or a new folder for a Hugging Face or "
        "Minari data set."
    ),
]
_KindOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Rows of the data: `conversations` for supervised fine-tuning (default); `turns` for "
        "offline reinforcement learning; `episodes`, one row each; or `minari`, a Minari data set "
        "in a new folder such as game-v0.",
    ),
]
_HeldOutOption = Annotated[
    bool,
    typer.Option(
        "--held-out",
        help="Include evaluation episodes, whose seeds training should not see. By default only "
        "`--as episodes` includes them, and only `--split eval` exports them alone.",
    ),
]


def export(
    run: RunArgument,
    out: _OutArgument,
    episode: Annotated[str | None, typer.Option(help="Id of the episode to write.")] = None,
    group: Annotated[str | None, typer.Option(help="Id of the group to write.")] = None,
    kind: _KindOption = None,
    split: SplitOption = None,
    label: LabelOption = None,
    step: StepOption = None,
    success: SuccessOption = None,
    min_reward: MinRewardOption = None,
    held_out: _HeldOutOption = False,
    replies: Annotated[
        bool, typer.Option("--replies", help="With --as minari: use reply texts as actions.")
    ] = False,
    width: Annotated[
        int | None, typer.Option(help="With --as minari: scale images to this width.", min=1)
    ] = None,
) -> None:
    """Write recorded episodes as a page, a video, a table or a data set.

    Example: agentrl export runs/NAME game.mp4 --episode ID
    """
    from agentrl import replay

    where = replay.Filter(
        split=split, label=label, step=step, success=success, min_reward=min_reward
    )
    minari_options = replies or width is not None
    is_data = episode is None and group is None and out.suffix in _DATA_SUFFIXES
    if not is_data:
        if kind or held_out or minari_options or where != replay.Filter():
            raise ConfigError(
                "--as, --held-out, --replies, --width and filters apply only to data (a .parquet, "
                ".csv or .jsonl file, or a new folder)"
            )
        _write_page(replay.open(run), out, episode, group)
        typer.echo(f"Open it in a browser: {out.absolute().as_uri()}")
        return
    if kind != "minari" and minari_options:
        raise ConfigError("--replies and --width require --as minari")
    _write_data(replay.open(run), out, kind or "conversations", where, held_out, replies, width)
    if kind in (None, "conversations") and out.suffix in ("", ".jsonl"):
        suggest(("sft", "CONFIG", f"sft.train.data={out}"))


def _write_page(run: "Run", out: Path, episode: str | None, group: str | None) -> None:
    from agentrl.viewer import export as pages

    if episode is not None and group is not None:
        raise ConfigError("give --episode or --group, not both")
    if episode is not None:
        pages.write(run, episode, out)
    elif group is not None:
        pages.write_group(run, group, out)
    elif out.suffix not in (".html", ".gif", ".mp4", ".png"):
        raise ConfigError(
            f"{out}: must end in .html, .gif, .mp4 or .png (pages and videos) or .parquet, .csv or "
            ".jsonl (tables), or be a new folder (a data set)"
        )
    elif out.suffix != ".html":
        raise ConfigError(f"{out}: a {out.suffix} file shows one episode; add --episode ID")
    else:
        pages.write_report(run, out)
    typer.echo(f"wrote {out}")


def _write_data(
    run: "Run",
    out: Path,
    kind: str,
    where: "Filter",
    held_out: bool,
    replies: bool,
    width: int | None,
) -> None:
    from agentrl.replay import minari_export, tables_export
    from agentrl.runs.episode_summary import check_label

    kinds = (*tables_export.KINDS, "minari")
    if kind not in kinds:
        raise ConfigError(f"--as {kind}: must be one of {', '.join(kinds)}")
    check_label(where.label, run.episodes())
    # Training on evaluation episodes would leave no held-out seeds, so skip them by default.
    if kind != "episodes" and where.split is None and not held_out:
        if count := len(run.episodes(replace(where, held_out=True))):
            typer.echo(
                f"skipped: {pluralize(count, 'evaluation episode')} (--held-out includes them)"
            )
        where = replace(where, held_out=False)
    if kind == "minari":
        with _progress() as report:
            written, left_out = minari_export.write(
                run, out, where, replies=replies, width=width, progress=report
            )
        for reason, count in left_out.items():
            typer.echo(f"skipped: {pluralize(count, 'episode')} {reason}")
        typer.echo(f"wrote {out}: {pluralize(written, 'episode')}")
        return
    labels = tables_export.write(run, kind, out, where)
    by_label = printable(", ".join(f"{count} {label}" for label, count in labels.most_common()))
    typer.echo(f"wrote {out}: {pluralize(labels.total(), 'row')} ({by_label})")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns(), MofNCompleteColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("reading", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, description="writing", completed=done, total=total)

        yield report


def pairs(
    run: RunArgument,
    out: Annotated[Path, typer.Argument(help="FILE.jsonl; images are written to FILE-images/.")],
    by: Annotated[
        str,
        typer.Option(
            help="`episode`: better and worse episodes of a group; `state`: replies in a state "
            "that several episodes of a group reached, ranked by the rewards that followed; "
            "`choice`: as chosen on the viewer's Preferences page."
        ),
    ] = "episode",
    min_gap: Annotated[float, typer.Option(help="Minimum difference in reward.")] = 0.0,
    per_group: Annotated[
        int | None, typer.Option(help="Maximum pairs per group; the largest differences are kept.")
    ] = None,
    label: LabelOption = None,
    step: StepOption = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out", help="Include evaluation episodes, whose seeds training should not see."
        ),
    ] = False,
) -> None:
    """Make preference pairs from a run's episodes of the same seeds, for DPO and reward models.

    Example: agentrl pairs runs/NAME pairs.jsonl --by state
    """
    from agentrl import config as configuration
    from agentrl import replay
    from agentrl.replay.preference_pairs import PairSettings, write
    from agentrl.rollout.environments.resolved_env import history_of
    from agentrl.runs.episode_summary import check_label

    recorded = replay.open(run)
    check_label(label, recorded.episodes())
    where = replay.Filter(label=label, step=step, held_out=None if held_out else False)
    # Write prompts exactly as the run's model saw them.
    history = history_of(configuration.load(recorded.path / "config.yaml").env)
    settings = PairSettings(by=by, min_gap=min_gap, per_group=per_group)
    count = write(recorded, out, where, history, settings)
    typer.echo(f"wrote {out}: {pluralize(count, 'pair')}")
    suggest(("dpo", "CONFIG", f"dpo.train.data={out}"))


def merge(
    run: Annotated[Path, typer.Argument(help="A run folder.", autocompletion=complete_run)],
    out: Annotated[Path, typer.Argument(help="New folder to write the model to.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Checkpoint: `best`, `last` or a step; default: the final model."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="`float32` or `bfloat16`; default: the run's precision.")
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Export only the LoRA adapters, for PEFT and vLLM."),
    ] = False,
) -> None:
    """Export a checkpoint as a model folder for transformers, vLLM and others.

    Example: agentrl merge runs/NAME my-model --dtype bfloat16
    """
    if out.exists():
        raise ConfigError(f"{out} already exists; choose a new folder")
    if dtype not in (None, "float32", "bfloat16"):
        raise ConfigError(f"--dtype {dtype}: must be float32 or bfloat16")
    if adapter and dtype is not None:
        raise ConfigError(
            "--dtype does not apply to --adapter, since adapters keep their precision"
        )
    # Imported late: this loads torch, which takes seconds.
    from agentrl.runs.run_folder import RunFolder
    from agentrl.training.checkpoints.model_export import export_checkpoint

    step = export_checkpoint(run, out, checkpoint, dtype, adapter)
    what = "adapters" if adapter else "model"
    typer.echo(f"wrote {out}: the {what} after step {step}")
    started_by = RunFolder(run).command
    if adapter:
        suggest(("eval", run))
    elif started_by == "agentrl train-reward-model":
        suggest(("serve-reward", out))
    elif started_by in ("agentrl sft", "agentrl dpo"):
        suggest(("chat", out), ("infer", out, "DATA", "--out", "FILE"))
    else:
        suggest(("eval", run / "config.yaml", f"model.path={out}"))

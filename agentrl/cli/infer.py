"""`agentrl infer`: get a model's responses to a data set."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentrl.cli.model_options import CHECKPOINT, GREEDY, MODEL, OVERRIDES
from agentrl.cli.terminal_output import LINE_S
from agentrl.errors import ConfigError
from agentrl.text.formatting import one_line, pluralize, printable

if TYPE_CHECKING:
    from agentrl.training.inference.batch_inference import InferenceProgress, InferenceResult

_Data = Annotated[
    str,
    typer.Argument(
        help="A file (.jsonl, .json, .csv, .parquet), a folder, or a Hugging Face id; DATA@SPLIT "
        "selects a split."
    ),
]
_System = Annotated[str | None, typer.Option(help="System message, unless a row has its own.")]
_Template = Annotated[
    str | None,
    typer.Option(
        help="Jinja2 template of the question, such as '{{ problem }} Think first.', or FILE.jinja."
    ),
]
_Keys = Annotated[
    list[str] | None,
    typer.Option(
        help="Name of a column that is not detected: problem=COLUMN, messages=COLUMN, "
        "images=COLUMN, options=COLUMN or system=COLUMN; null for no column. Repeatable.",
        metavar="CONTENT=COLUMN",
    ),
]
_ImageRoot = Annotated[
    str | None, typer.Option(help="Folder that contains the images; default: the data's folder.")
]
_Subset = Annotated[str | None, typer.Option(help="Configuration (subset) of a Hub data set.")]
_Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub data set.")]


def infer(
    model: MODEL,
    data: _Data,
    overrides: OVERRIDES = None,
    out: Annotated[Path, typer.Option(help="The .jsonl or .parquet file to write.")] = ...,  # type: ignore[assignment]
    n: Annotated[int, typer.Option("--n", "-n", help="Responses per row.", min=1)] = 1,
    greedy: GREEDY = False,
    system: _System = None,
    template: _Template = None,
    key: _Keys = None,
    image_root: _ImageRoot = None,
    max_rows: Annotated[int | None, typer.Option(help="Use only the first N rows.", min=1)] = None,
    name: _Subset = None,
    revision: _Revision = None,
    checkpoint: CHECKPOINT = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Get a model's response to each row of a data set. Run it again to continue after a stop.

    Example: agentrl infer runs/NAME test.jsonl --out answers.jsonl --n 4 rollout.temperature=0.7
    """
    from agentrl.training.inference import batch_inference

    source = batch_inference.PromptSource(
        data=data,
        name=name,
        revision=revision,
        max_rows=max_rows,
        keys=dict(_split(pair) for pair in key or ()),
        template=template,
        image_root=image_root,
        system=system,
    )
    with _progress() as report, _explained(batch_inference.journal_of(out)):
        found = batch_inference.infer(
            model, source, out, n=n, greedy=greedy, checkpoint=checkpoint,
            overrides=overrides or (), report=report,
        )  # fmt: skip
    if found.engine_check is not None:
        sys.stderr.write(f"{found.engine_check}\n")
    if as_json:
        counts = {"rows": found.rows, "recorded": found.recorded, "failed": found.failed}
        more = {"reply_tokens": found.reply_tokens, "seconds": round(found.seconds, 1)}
        typer.echo(json.dumps({"out": str(found.out)} | counts | more))
    else:
        _print_result(found)
    if found.failed and found.failed == found.rows:
        sys.stderr.write(printable(f"no row has a response: {found.error}") + "\n")
        raise typer.Exit(1)


def _print_result(found: "InferenceResult") -> None:
    before = f", {found.recorded:,} of them earlier" if found.recorded else ""
    typer.echo(
        f"wrote {found.out}: {pluralize(found.rows, 'row')}{before}; "
        f"{pluralize(found.reply_tokens, 'token')} of replies"
    )
    if found.failed:
        what = f"{pluralize(found.failed, 'row')} without responses"
        first = one_line(printable(found.error or ""))
        typer.echo(f"{what}; the column `error` has the reasons. First error: {first}")


def _split(pair: str) -> tuple[str, str | None]:
    content, equals, column = pair.partition("=")
    if not equals or not column:
        raise ConfigError(f"--key {pair}: must be CONTENT=COLUMN, as in problem=question")
    return content, None if column == "null" else column


@contextmanager
def _explained(journal: Path) -> Iterator[None]:
    """Print how to continue if the command ends early after recording rows."""
    try:
        yield
    except ConfigError:
        raise
    except BaseException:
        if journal.exists():
            sys.stderr.write(
                f"finished rows are recorded in {journal}; run the same command to continue\n"
            )
        raise


@contextmanager
def _progress() -> "Iterator[Callable[[InferenceProgress], None]]":
    """Show a progress bar on a terminal, or print a line now and then elsewhere."""
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
    # Print it to standard error, because --json prints to standard output.
    bar = Progress(
        *Progress.get_default_columns(), MofNCompleteColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip
    last: float | None = None

    def report(progress: "InferenceProgress") -> None:
        nonlocal last
        done = progress.recorded + progress.done
        if console.is_terminal:
            bar.update(task, completed=done, total=progress.rows)
        elif last is None or time.monotonic() - last > LINE_S or done == progress.rows:
            last = time.monotonic()
            rate = progress.done / max(progress.seconds, 1e-9)
            sys.stderr.write(f"{done:,} of {progress.rows:,} rows, {rate:.1f} per second\n")

    with bar:
        task = bar.add_task("answering", total=None)
        yield report

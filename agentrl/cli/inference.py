"""`agentrl infer` and `agentrl chat`: a model's replies to a data set, or to a person."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentrl.errors import ConfigError
from agentrl.text import pluralize

if TYPE_CHECKING:
    from agentrl.training.inference.batch_inference import InferenceProgress

_LINE_S = 10.0
"""How often a line shows the progress where there is no terminal."""

_Model = Annotated[
    str,
    typer.Argument(
        help="The folder of a run or a model, an id on the Hugging Face Hub, or the URL of a chat "
        "completions server, such as http://HOST:PORT/v1."
    ),
]
_Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Overrides, such as rollout.temperature=0.7.", metavar="KEY=VALUE"),
]
_Greedy = Annotated[bool, typer.Option("--greedy", help="Always take the most probable token.")]
_Checkpoint = Annotated[
    str | None, typer.Option(help="Of a run: `best`, `last` or a step; else its final model.")
]


def infer(
    model: _Model,
    data: Annotated[
        str,
        typer.Argument(
            help="A file (.jsonl, .json, .csv, .parquet), a folder, or an id on the Hugging Face "
            "Hub; DATA@SPLIT names the split."
        ),
    ],
    overrides: _Overrides = None,
    out: Annotated[Path, typer.Option(help="A .jsonl or .parquet file to write.")] = ...,  # type: ignore[assignment]
    n: Annotated[int, typer.Option("--n", "-n", help="Responses per row.", min=1)] = 1,
    greedy: _Greedy = False,
    system: Annotated[
        str | None, typer.Option(help="System message of rows that have none.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help="Jinja2 for the question, such as '{{ problem }} Think first.', or FILE.jinja."
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a column, if it is none of the usual: problem=, messages= or images=.",
            metavar="CONTENT=COLUMN",
        ),
    ] = None,
    image_root: Annotated[
        str | None, typer.Option(help="Folder that contains the images; default: the data's own.")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Only the first rows.", min=1)] = None,
    name: Annotated[
        str | None, typer.Option(help="Configuration (subset) of a data set of the Hub.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a data set of the Hub.")
    ] = None,
    checkpoint: _Checkpoint = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Answer each row of a data set; run the same command again to continue one that was stopped.

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
    if as_json:
        counts = {"rows": found.rows, "recorded": found.recorded, "failed": found.failed}
        more = {"reply_tokens": found.reply_tokens, "seconds": round(found.seconds, 1)}
        typer.echo(json.dumps({"out": str(found.out)} | counts | more))
        return
    before = f", {found.recorded:,} of them before" if found.recorded else ""
    typer.echo(
        f"wrote {out}: {pluralize(found.rows, 'row')}{before}; "
        f"{pluralize(found.reply_tokens, 'token')} of replies"
    )
    if found.failed:
        what = f"{pluralize(found.failed, 'row')} without responses"
        typer.echo(f"{what}: the column `error` says why")


def _split(pair: str) -> tuple[str, str]:
    content, equals, column = pair.partition("=")
    if not equals or not column:
        raise ConfigError(f"--key {pair}: must look like problem=COLUMN")
    return content, column


@contextmanager
def _explained(journal: Path) -> Iterator[None]:
    """Say how to continue, if something ends a job that has recorded rows."""
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
    """A bar on a terminal, and a line now and then elsewhere."""
    from rich.progress import MofNCompleteColumn, Progress

    console = Console(stderr=True)
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
        elif last is None or time.monotonic() - last > _LINE_S:
            last = time.monotonic()
            rate = progress.done / max(progress.seconds, 1e-9)
            sys.stderr.write(f"{done:,} of {progress.rows:,} rows, {rate:.1f} per second\n")

    with bar:
        task = bar.add_task("answering", total=None)
        yield report


def chat(model: _Model) -> None:
    """Chat."""

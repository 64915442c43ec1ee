"""Answers the rows of a data set with a model; a killed job can be continued."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentrl import event_loop
from agentrl.data.open_table import Selection, open_table
from agentrl.data.prompt_templates import find_template
from agentrl.data.question_reader import PromptRows
from agentrl.data.tables import RowWriter
from agentrl.errors import (
    ConfigError,
    EndpointRefused,
    EndpointUnreachable,
    EngineError,
    with_short_mistakes,
)
from agentrl.files import StrPath, atomic_replace, remove_partial_files, sync
from agentrl.policies.model_policy import turn_seed
from agentrl.text.formatting import encodable, one_line
from agentrl.training.engine_check.engine_comparison import EngineComparison
from agentrl.training.inference.inference_model import (
    InferenceModel,
    InferenceTarget,
    open_inference_model,
    open_inference_target,
)
from agentrl.training.inference.row_journal import RowJournal
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.types import Message

T = TypeVar("T")

_COLUMNS = {
    "row": "int64",
    "responses": "list<string>",
    "finish_reasons": "list<string>",
    "prompt_tokens": "int64",
    "response_tokens": "list<int64>",
    "error": "string",
}
"""Columns added to each row, with their Parquet types."""
_IN_FLIGHT = 256
"""Maximum replies in progress per engine: as many as vLLM samples at once."""
_REFUSALS = (400, 413, 422)
"""HTTP status codes for the rejection of a single request, rather than all requests."""
_MAX_FAILURES = 8
"""Number of consecutive server failures after which the job stops."""


@dataclass(slots=True, kw_only=True, frozen=True)
class PromptSource:
    """The data set to answer, and how to turn its rows into prompts."""

    data: str
    """A file, a folder, or an id on the Hugging Face Hub; `DATA@SPLIT` selects a split."""
    name: str | None = None
    """Configuration (subset) of a Hub data set."""
    revision: str | None = None
    """Branch, tag or commit of a Hub data set."""
    max_rows: int | None = None
    """Use only the first `max_rows` rows; None uses all."""
    keys: Mapping[str, str | None] = field(default_factory=dict)
    """Column names for `problem`, `messages`, `images`, `options` and `system`, where they differ
    from the defaults."""
    template: str | None = None
    """Jinja2 template for questions in a text column, or the name of a `.jinja` file."""
    image_root: str | None = None
    """Folder that contains the images; None uses the data set's own folder."""
    system: str | None = None
    """System message for conversations without one."""

    def open(self) -> PromptRows:
        """Open the data set's rows.

        Raises:
            ConfigError: the data set does not exist or cannot be used, see `PromptRows`.
        """
        if self.max_rows is not None and self.max_rows < 1:
            raise ConfigError(f"max_rows={self.max_rows}: must be at least 1")
        selection = Selection(name=self.name, revision=self.revision, max_rows=self.max_rows)
        root = None if self.image_root is None else Path(self.image_root).expanduser()
        if root is not None and not root.is_dir():
            raise ConfigError(f"image_root={self.image_root}: no such folder")
        return PromptRows(
            open_table(self.data, selection),
            self.data,
            keys=self.keys,
            template=self.template_text(),
            image_root=root,
            system=self.system,
        )

    def template_text(self) -> str | None:
        """Return the template's text, read from its file if `template` names a file.

        Raises:
            ConfigError: the template's file does not exist.
        """
        if self.template is None or not self.template.endswith(".jinja"):
            return self.template
        return find_template(self.template, "template").read_text("utf-8")


@dataclass(slots=True, kw_only=True)
class InferenceProgress:
    """Progress of an inference job."""

    rows: int
    """Number of rows in the data set."""
    recorded: int
    """Number of rows answered by earlier runs of the same job."""
    done: int = 0
    """Number of rows that this run has answered or found to be unusable."""
    reply_tokens: int = 0
    """Number of reply tokens, not counting replies of unknown length."""
    seconds: float = 0.0
    """Seconds since the engines started."""
    engine_check: EngineComparison | None = None
    """Result of the engine's comparison with transformers; None without one."""


@dataclass(slots=True, kw_only=True, frozen=True)
class InferenceResult:
    """Result of a finished inference job."""

    out: Path
    rows: int
    recorded: int
    """Number of rows answered by earlier runs of the same job."""
    failed: int
    """Number of rows without responses, which have an `error`."""
    error: str | None
    """The error of the first row without responses; None if all rows have responses."""
    reply_tokens: int
    """Number of tokens of all replies, not counting replies of unknown length."""
    seconds: float
    """Duration of this run in seconds, after its engines had started."""
    engine_check: EngineComparison | None = None
    """Result of the engine's comparison with transformers; None without one."""


@with_short_mistakes
def infer(
    model: StrPath,
    data: str | PromptSource,
    out: StrPath,
    *,
    n: int = 1,
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    report: Callable[[InferenceProgress], None] = lambda progress: None,
) -> InferenceResult:
    """Answer each row of a data set, which need not contain reference answers.

    Finished rows are recorded immediately in `OUT.journal`. Repeat the call to continue an
    interrupted job. At the end, `out` is written atomically and the journal is removed.

    Args:
        model: see `open_inference_target`.
        data: the data set, or a `PromptSource` with further settings.
        out: a `.jsonl` or `.parquet` file to write, with the columns of each row, in order, and
            `row` (its index), `responses`, `finish_reasons`, `prompt_tokens`, `response_tokens`,
            and `error` for a row that has no responses.
        n: responses per row.
        greedy: always take the most probable token.
        checkpoint: checkpoint of a run: `best`, `last` or a step; None takes its final model.
        overrides: `key=value` settings, such as `rollout.temperature=0.7`,
            `rollout.max_new_tokens=512` or `rollout.engine=hf`.
        report: called with the progress.

    Raises:
        ConfigError: an argument or setting names something that does not exist, `out` exists, or
            its journal belongs to another job.
        EngineError: an engine or the server failed; finished rows stay recorded.
        SystemExit: with status 143, after SIGTERM.
    """
    out = Path(out)
    if n < 1:
        raise ConfigError(f"n={n}: must be at least 1")
    if greedy and n > 1:
        raise ConfigError(f"n={n}: must be 1 with greedy decoding, which always gives one reply")
    target = open_inference_target(os.fspath(model), overrides, checkpoint)
    source = data if isinstance(data, PromptSource) else PromptSource(data=data)
    rows = source.open()
    writer = RowWriter(out, rows.table, _COLUMNS)
    path, exists = journal_of(out), out.exists()
    if not out.parent.is_dir():
        raise ConfigError(f"out={out}: {out.parent} is not a folder")
    if exists and not path.exists():
        raise _exists(out)
    with closing(RowJournal(path, _identity(target, source, rows, n, greedy))) as journal:
        # If the journal is complete, this job wrote `out` and was killed before it removed the
        # journal.
        if exists and len(journal) < len(rows):
            raise _exists(out)
        job = _InferenceJob(rows, journal, n, greedy, report)
        if len(journal) < len(rows):
            event_loop.run(job.run(target))
        result = job.write(out, writer)
        path.unlink()
    return result


def journal_of(out: StrPath) -> Path:
    """Return the path of the file in which a job records finished rows until all are finished."""
    return Path(out).with_name(f"{Path(out).name}.journal")


def _exists(out: Path) -> ConfigError:
    return ConfigError(f"out={out}: already exists; remove it, or choose a different name")


def _identity(
    target: InferenceTarget, source: PromptSource, rows: PromptRows, n: int, greedy: bool
) -> dict[str, Any]:
    """Return everything that determines the results, so that no other job continues this one."""
    rollout = target.plan.settings.rollout
    given = asdict(source) | {"template": source.template_text(), "keys": dict(source.keys)}
    return {
        **target.identity(),
        "n": n,
        "greedy": greedy,
        "rollout.temperature": rollout.temperature,
        "rollout.top_p": rollout.top_p,
        "rollout.max_new_tokens": rollout.max_new_tokens,
        **given,
        "rows": len(rows),
        "content": rows.digest,
    }


class _InferenceJob:
    """Answers the rows that are not recorded yet.

    Args:
        rows: all rows.
        journal: journal of the finished rows.
        n: responses per row.
        greedy: see `infer`.
        report: see `infer`.
    """

    def __init__(
        self,
        rows: PromptRows,
        journal: RowJournal,
        n: int,
        greedy: bool,
        report: Callable[[InferenceProgress], None],
    ) -> None:
        self._rows, self._journal, self._n, self._greedy = rows, journal, n, greedy
        self._report = report
        self.progress = InferenceProgress(rows=len(rows), recorded=len(journal))
        self._served = False
        self._suspects: dict[int, dict[str, Any]] = {}
        """Error results of rows for which the server failed, since its last successful reply."""
        self._failed = self._reply_tokens = 0
        self._error: str | None = None

    async def run(self, target: InferenceTarget) -> None:
        """Answer all remaining rows."""
        self._served = target.policy.is_served
        left = iter([i for i in range(len(self._rows)) if i not in self._journal])

        async def work(model: InferenceModel) -> None:
            for index in left:
                await self._answer(model, index)
                self.progress.seconds = time.monotonic() - started
                self._report(self.progress)

        with acknowledge_stop_signals():
            # Seed engines by the number of recorded rows, because a random stream that starts over
            # would repeat its draws.
            async with open_inference_model(target, len(self._journal)) as model:
                await model.check_engine(await asyncio.to_thread(self._first_prompts, model))
                self.progress.engine_check = model.engine_check
                started = time.monotonic()
                limit = _IN_FLIGHT * model.num_engines
                most = model.rollout.concurrency if target.policy.is_served else limit
                await _run_together([work(model) for _ in range(max(1, most // self._n))])
        self._record_suspects()

    def _first_prompts(self, model: InferenceModel) -> list[Any]:
        """Encode the first usable rows that are not recorded yet."""
        found: list[Any] = []
        for index in range(len(self._rows)):
            if len(found) == model.rollout.engine_check.prompts:
                break
            if index not in self._journal and index not in self._rows.bad:
                with suppress(ValueError):  # reported when the row is answered
                    found.append(self._encode(model, index))
        return found

    async def _answer(self, model: InferenceModel, index: int) -> None:
        """Answer a row, and record its responses or the error."""
        if index in self._rows.bad:
            self._record(index, _failed(self._rows.bad[index]))
            return
        try:
            prompt = await asyncio.to_thread(self._encode, model, index)
            # Seeds depend only on the row's index, so a continued job samples the same replies.
            seeds = [turn_seed(turn_seed(0, index), number) for number in range(self._n)]
            samplings = [model.sampling(seed, greedy=self._greedy) for seed in seeds]
            replies = await _run_together([model.generate(prompt, one) for one in samplings])
        except ValueError as error:  # such as `BadRow`, `ImageError` and `PromptTooLong`
            self._record(index, _failed(str(error)))
            return
        except EngineError as error:
            self._suspect(index, error)
            return
        self._record_suspects()
        self.progress.reply_tokens += sum(reply.reply_tokens or 0 for reply in replies)
        result = {
            "responses": [encodable(reply.text) for reply in replies],
            "finish_reasons": [reply.finish_reason for reply in replies],
            "prompt_tokens": replies[0].prompt_tokens,
            "response_tokens": [reply.reply_tokens for reply in replies],
            "error": None,
        }
        self._record(index, result)

    def _encode(self, model: InferenceModel, index: int) -> Any:
        system, row = self._rows.load(index)
        images = iter(row.images)
        messages = [
            Message(
                role=message.role,
                text=message.text,
                images=tuple(next(images) for _ in message.images),
            )
            for message in row.messages
        ]
        return model.encode(system, messages)

    def _suspect(self, index: int, error: EngineError) -> None:
        """Note a server failure, which may be due to this prompt or affect all prompts.

        It is recorded as the row's error once the server has answered another prompt.

        Raises:
            EngineError: the server no longer works.
        """
        fails_all = isinstance(error, EndpointUnreachable) or (
            isinstance(error, EndpointRefused) and error.status not in _REFUSALS
        )
        if not self._served or fails_all or len(self._suspects) == _MAX_FAILURES:
            raise error
        self._suspects[index] = _failed(str(error))

    def _record_suspects(self) -> None:
        for index, result in self._suspects.items():
            self._record(index, result)
        self._suspects.clear()

    def _record(self, index: int, result: Mapping[str, Any]) -> None:
        self._journal.add(index, result)
        self.progress.done += 1

    def write(self, out: Path, writer: RowWriter) -> InferenceResult:
        """Write the complete file atomically, once all rows are recorded."""
        remove_partial_files(out.parent, out.name)
        with atomic_replace(out) as partial:
            writer.write(partial, self._columns())
            sync(partial)
        return InferenceResult(
            out=out,
            rows=len(self._rows),
            recorded=self.progress.recorded,
            failed=self._failed,
            error=self._error,
            reply_tokens=self._reply_tokens,
            seconds=self.progress.seconds,
            engine_check=self.progress.engine_check,
        )

    def _columns(self) -> Iterator[dict[str, Any]]:
        """Yield the columns to add to each row, in order, counting failures and tokens."""
        for index in range(len(self._rows)):
            result = self._journal.result(index)
            self._failed += result["error"] is not None
            self._error = self._error or result["error"]
            self._reply_tokens += sum(count or 0 for count in result["response_tokens"])
            yield {"row": index, **result}


def _failed(why: str) -> dict[str, Any]:
    """Return the result of a row without responses."""
    return {
        "responses": [],
        "finish_reasons": [],
        "prompt_tokens": None,
        "response_tokens": [],
        "error": encodable(one_line(why, 500)),
    }


async def _run_together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

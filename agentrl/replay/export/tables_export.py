"""Recorded episodes as tables for other tools: Arrow, pandas, Hugging Face data sets.

`pyarrow` and `datasets` (`pip install 'agentrl[data]'`) are imported here alone.
"""

import json
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.files import atomic_replace
from agentrl.replay.episode_filters import Filter
from agentrl.replay.episode_summary import Summary, at
from agentrl.replay.reader import RecordedEpisode, Run
from agentrl.text import encodable
from agentrl.types import IMAGE

if TYPE_CHECKING:
    import datasets
    import pyarrow

KINDS = ("episodes", "turns", "conversations")
GET_DATA = "pip install 'agentrl[data]'"
_ROWS_AT_ONCE = 16
"""In memory, each with its pictures."""
_SHARD_BYTES = 64 << 20
"""Of a file of a data set, which is held in memory as it is written."""


def rows(run: Run, kind: str, wanted: Filter | None = None) -> Iterator[dict[str, Any]]:
    """Plain rows; turns and conversations leave out void, removed and damaged episodes.

    Args:
        run: the recorded run.
        kind: `episodes`, one row each; `turns`, for offline reinforcement learning; or
            `conversations`, one row an episode, for supervised fine-tuning.
        wanted: which episodes; None for all.

    Raises:
        ConfigError: there is no such kind, or the run cannot be read.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    found = run.episodes(wanted)
    if kind == "episodes":
        yield from map(_episode, found)
        return
    for recorded in run.opened(summary for summary in found if not summary.outcome.void):
        if kind == "turns":
            yield from _turns(recorded)
        else:
            yield _conversation(recorded)


def to_arrow(run: Run, kind: str = "episodes", wanted: Filter | None = None) -> "pyarrow.Table":
    """An Arrow table; frames are named by their ids, and `Run.frame` loads them.

    Args:
        run: the recorded run.
        kind: `episodes`, `turns` or `conversations`.
        wanted: which episodes; None for all.

    Raises:
        ConfigError: as `rows`; pyarrow is not installed, or a value fits into no column.
    """
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(f"tables need pyarrow, not installed: {GET_DATA}") from None
    found = [_encodable(row) for row in rows(run, kind, wanted)]
    # Of all rows: a void episode has no metrics, and it may be the first.
    names = dict.fromkeys(name for row in found for name in row)
    try:
        return pyarrow.table({name: [row.get(name) for row in found] for name in names})
    except (OverflowError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{run.path}: fits into no table: {error}; .jsonl takes it") from error


def to_dataset(
    run: Run,
    kind: str = "conversations",
    wanted: Filter | None = None,
    *,
    cache: Path | None = None,
) -> "datasets.Dataset":
    """A Hugging Face data set with its pictures in a column `images`, one for each `<image>`.

    Conversations have the `messages` that trainers for chat models take. A frame that was not
    recorded makes its row unusable: such rows are left out.

    Args:
        run: the recorded run.
        kind: `turns` or `conversations`.
        wanted: which episodes; None for all.
        cache: a folder for the rows, which then stay on the disk; None holds them in memory.

    Raises:
        ConfigError: as `rows`; the library is not installed, or there is nothing to write.
    """
    try:
        import datasets
        import pyarrow
    except ImportError:
        raise ConfigError(f"data sets need `datasets`, not installed: {GET_DATA}") from None
    if kind == "episodes":
        raise ConfigError("kind='episodes': has no pictures and no words; use to_arrow")

    def whole() -> Iterator[dict[str, Any]]:
        for row in rows(run, kind, wanted):
            held = [run.frame_bytes(frame) for frame in row.pop("frames")]
            if all(held):
                yield _encodable(row) | {"images": [{"bytes": png, "path": None} for png in held]}

    if next(whole(), None) is None:
        if next(rows(run, kind, wanted), None) is None:
            raise _nothing(run, kind)
        raise ConfigError(f"{run.path}: every episode that is like this has lost a frame")
    with tempfile.TemporaryDirectory(prefix="agentrl-") as folder:
        # Its caches are named after what made them: a run that grows would be taken from there.
        try:
            return datasets.Dataset.from_generator(
                whole, features=_features(kind), cache_dir=str(cache or folder),
                keep_in_memory=cache is None, fingerprint=uuid.uuid4().hex,
                writer_batch_size=_ROWS_AT_ONCE,
            )  # fmt: skip
        except datasets.exceptions.DatasetGenerationError as error:
            cause = error.__cause__ or error
            if isinstance(cause, OverflowError | pyarrow.ArrowException):
                raise ConfigError(f"{run.path}: fits into no data set: {cause}") from cause
            raise cause from None


def write(run: Run, kind: str, path: Path, wanted: Filter | None = None) -> Counter[str]:
    """Write a table.

    Args:
        run: the recorded run.
        kind: `episodes`, `turns` or `conversations`.
        path: `.parquet`, `.csv` or `.jsonl`; without an ending, the folder of a Hugging Face data
            set, which must not exist.
        wanted: which episodes; None for all.

    Returns:
        How many rows it has, by the label of their episode.

    Raises:
        ConfigError: as `to_dataset`; there is no row, no such kind of file, or it cannot be
            written.
    """
    if path.suffix not in ("", ".jsonl", ".parquet", ".csv"):
        raise ConfigError(f"{path}: must end in .parquet, .csv or .jsonl, or name a new folder")
    if path.suffix == "" and path.exists():
        raise ConfigError(f"{path}: exists; name a folder that does not")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == "":
            return _write_folder(run, kind, path, wanted)
        with atomic_replace(path) as partial:
            labels = _write_file(run, kind, partial, wanted)
            if not labels:  # what is there already stays
                raise _nothing(run, kind)
            return labels
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def _nothing(run: Run, kind: str) -> ConfigError:
    less = "" if kind == "episodes" else ", and void and removed episodes do not count"
    return ConfigError(
        f"{run.path}: nothing to write: none of its {kind} is like this{less} "
        "(agentrl replay RUN --list shows what is there)"
    )


def _write_file(run: Run, kind: str, path: Path, wanted: Filter | None) -> Counter[str]:
    if path.suffix == ".jsonl":
        labels = Counter[str]()
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for row in rows(run, kind, wanted):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                labels[row["label"]] += 1
        return labels
    table = to_arrow(run, kind, wanted)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        from pyarrow import csv

        csv.write_csv(_flat(table), path)
    return Counter(table.column("label").to_pylist()) if table.num_rows else Counter()


def _write_folder(run: Run, kind: str, path: Path, wanted: Filter | None) -> Counter[str]:
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        made = to_dataset(run, kind, wanted, cache=partial / "cache")
        made.save_to_disk(str(partial / "whole"), max_shard_size=_SHARD_BYTES)
        (partial / "whole").rename(path)
        return Counter(made["label"])
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _features(kind: str) -> "datasets.Features":
    """Of the columns of a data set."""
    from datasets import Features, Image, List, Value

    words, whole, number, truth = (Value(name) for name in ("string", "int64", "float64", "bool"))
    about = {"id": words, "split": words, "label": words, "step": whole, "seed": whole}
    images = {"images": List(Image())}
    if kind == "conversations":
        messages = List({"role": words, "content": words})
        return Features({**about, "total": number, "won": truth, "messages": messages, **images})
    return Features(
        {
            **about, "turn": whole, "instructions": words, "shown": words, "reply": words,
            "action": words, "readable": truth, "reward": number, "env_reward": number,
            "advantage": number, "terminated": truth, "truncated": truth, "state_key": words,
            "reply_ids": List(whole), "reply_logprobs": List(number), **images,
        }
    )  # fmt: skip


def _encodable(value: Any) -> Any:
    """The same with texts that every file takes."""
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def _flat(table: "pyarrow.Table") -> "pyarrow.Table":
    """The same with lists and mappings as JSON text, which is all that a CSV can hold."""
    import pyarrow

    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pyarrow.types.is_nested(column.type):
            columns[name] = [json.dumps(value) for value in column.to_pylist()]
        else:
            columns[name] = column
    return pyarrow.table(columns)


def _episode(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id, "split": summary.split, "label": summary.label, "step": summary.step,
        "time": summary.time, "env_id": summary.env_id, "group": summary.group,
        "member": summary.member, "seed": summary.seed, "outcome": summary.outcome.value,
        "cause": summary.cause, "error": summary.error, "device": summary.device,
        "won": summary.won, "turns": summary.turns, "tokens": summary.tokens,
        "seconds": summary.seconds, "env_reward": summary.env_reward, "total": summary.total,
        "config": summary.config, "removed": summary.removed,
        **{f"metrics/{name}": value for name, value in summary.metrics.items()},
        **{f"reward/{name}": sum(values) for name, values in summary.components.items()},
    }  # fmt: skip


def _turns(recorded: RecordedEpisode) -> Iterator[dict[str, Any]]:
    summary, episode = recorded.summary, recorded.episode
    last = len(episode.turns) - 1
    for number, turn in enumerate(episode.turns):
        yield {
            **_about(summary),
            "turn": number + 1, "instructions": episode.instructions, "shown": turn.shown,
            "frames": list(turn.frames), "reply": turn.reply, "action": json.dumps(turn.action),
            "readable": turn.parse_error is None,
            "reward": at(summary.rewards, number) or 0.0,
            "env_reward": turn.env_reward,
            "advantage": at(summary.advantages, number),
            "terminated": number == last and summary.outcome.value == "terminated",
            "truncated": number == last and summary.outcome.value == "truncated",
            "state_key": turn.state_key, "reply_ids": list(turn.reply_ids),
            "reply_logprobs": list(turn.reply_logprobs),
        }  # fmt: skip


def _conversation(recorded: RecordedEpisode) -> dict[str, Any]:
    summary, episode = recorded.summary, recorded.episode
    messages = []
    if episode.instructions:
        messages.append({"role": "system", "content": episode.instructions})
    frames: list[str] = []
    for turn in episode.turns:
        frames += turn.frames
        words = turn.shown
        if words.count(IMAGE) != len(turn.frames):  # format 1 knew no words
            words = IMAGE * len(turn.frames) + words.replace(IMAGE, "")
        messages.append({"role": "user", "content": words})
        messages.append({"role": "assistant", "content": turn.reply})
    return {
        **_about(summary), "total": summary.total, "won": summary.won,
        "messages": messages, "frames": frames,
    }  # fmt: skip


def _about(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id, "split": summary.split, "label": summary.label, "step": summary.step,
        "seed": summary.seed,
    }  # fmt: skip

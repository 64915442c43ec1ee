"""Recorded episodes as tables for other tools: Arrow, pandas, Hugging Face data sets.

`pyarrow` and `datasets` (`pip install 'agentrl[data]'`) are imported here alone.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError
from agentrl.files import replacing
from agentrl.replay.filters import Filter
from agentrl.replay.read import RecordedEpisode, Run
from agentrl.replay.summary import Summary, at
from agentrl.text import encodable
from agentrl.types import IMAGE

if TYPE_CHECKING:
    import datasets
    import pyarrow

KINDS = ("episodes", "turns", "conversations")
GET_DATA = "pip install 'agentrl[data]'"


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
    run: Run, kind: str = "conversations", wanted: Filter | None = None
) -> "datasets.Dataset":
    """A Hugging Face data set with its pictures in a column `images`, one for each `<image>`.

    Conversations have the `messages` that trainers for chat models take. A frame that was not
    recorded makes its row unusable: such rows are left out.

    Args:
        run: the recorded run.
        kind: `turns` or `conversations`.
        wanted: which episodes; None for all.

    Raises:
        ConfigError: as `rows`; the library is not installed, or there is nothing to write.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"data sets need `datasets`, not installed: {GET_DATA}") from None
    if kind == "episodes":
        raise ConfigError("kind='episodes': has no pictures and no words; use to_arrow")

    def whole() -> Iterator[dict[str, Any]]:
        for row in rows(run, kind, wanted):
            held = [run.frame_bytes(frame) for frame in row.pop("frames")]
            if all(held):
                yield _encodable(row) | {"images": [{"bytes": png, "path": None} for png in held]}

    found = list(whole())
    if not found:
        raise ConfigError(f"{run.path}: no episode with all its frames is like this")
    try:
        made = datasets.Dataset.from_list(found)
    except OverflowError as error:
        raise ConfigError(f"{run.path}: fits into no data set: {error}") from error
    return made.cast_column("images", datasets.List(datasets.Image()))


def write(run: Run, kind: str, path: Path, wanted: Filter | None = None) -> int:
    """Write a table, and tell how many rows it has.

    Args:
        run: the recorded run.
        kind: `episodes`, `turns` or `conversations`.
        path: `.parquet`, `.csv` or `.jsonl`; without an ending, the folder of a Hugging Face data
            set, which must not exist.
        wanted: which episodes; None for all.

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
            made = to_dataset(run, kind, wanted)
            _save(made, path)
            return len(made)
        with replacing(path) as partial:
            count = _write_file(run, kind, partial, wanted)
            if not count:  # what is there already stays
                less = "" if kind == "episodes" else ", and void and removed episodes do not count"
                raise ConfigError(
                    f"{run.path}: nothing to write: none of its {kind} is like this{less} "
                    "(agentrl replay RUN --list shows what is there)"
                )
            return count
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def _write_file(run: Run, kind: str, path: Path, wanted: Filter | None) -> int:
    if path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows(run, kind, wanted)]
        path.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
        return len(lines)
    table = to_arrow(run, kind, wanted)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        from pyarrow import csv

        csv.write_csv(_flat(table), path)
    return int(table.num_rows)


def _save(made: "datasets.Dataset", path: Path) -> None:
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        made.save_to_disk(str(partial))
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
            "id": summary.id, "turn": number + 1, "split": summary.split, "step": summary.step,
            "seed": summary.seed, "instructions": episode.instructions, "shown": turn.shown,
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
        "id": summary.id, "seed": summary.seed, "total": summary.total, "won": summary.won,
        "messages": messages, "frames": frames,
    }  # fmt: skip

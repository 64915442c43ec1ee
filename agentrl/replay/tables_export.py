"""Export recorded episodes as Arrow tables, Parquet, CSV, JSONL and Hugging Face data sets.

This is the only module that imports `pyarrow` and `datasets` (extra `data`).
"""

import json
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import extras
from agentrl.config import History
from agentrl.errors import ConfigError
from agentrl.files import atomic_replace
from agentrl.replay.run_reader import RecordedEpisode, Run
from agentrl.runs.episode_summary import Filter, Summary, at
from agentrl.text.formatting import encodable
from agentrl.types import IMAGE, Episode, EpisodeMessage

if TYPE_CHECKING:
    import datasets
    import pyarrow

KINDS = ("episodes", "turns", "conversations")
_ROWS_AT_ONCE = 16
"""Number of rows with images in memory at a time."""
_SHARD_BYTES = 64 << 20
"""Size in bytes of one data set file, which is held in memory while being written."""


def rows(
    run: Run, kind: str, where: Filter | None = None, history: History | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows as plain dictionaries; `turns` and `conversations` skip void and lost episodes.

    They begin where the policy does: turns that a scripted player made in its place (`env.start`)
    are counted in `guided_turns`, and left out, as they are not the policy's to be trained on.

    Args:
        run: the recorded run.
        kind: `episodes`, one row per episode; `turns`, one row per turn, for offline
            reinforcement learning; or `conversations`, one row per episode with its messages, for
            supervised fine-tuning.
        where: which episodes; None for all.
        history: the contents of prompts; if prompts contained less than the whole conversation,
            each turn becomes a separate conversation. None uses whole conversations.

    Raises:
        ConfigError: the kind does not exist, or the run cannot be read.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    summaries = run.episodes(where)
    if kind == "episodes":
        yield from map(episode_row, summaries)
        return
    for recorded in run.opened(summary for summary in summaries if not summary.outcome.void):
        if kind == "turns":
            yield from _turns(recorded)
        else:
            yield from _conversations(recorded, history or History())


def to_arrow(run: Run, kind: str = "episodes", where: Filter | None = None) -> "pyarrow.Table":
    """Return an Arrow table with frame ids, which `Run.frame` can load.

    Args:
        run: the recorded run.
        kind: `episodes`, `turns` or `conversations`.
        where: which episodes; None for all.

    Raises:
        ConfigError: as in `rows`; pyarrow is not installed, or a value does not fit into a column.
    """
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(f"pyarrow is not installed; run: {extras.GET_DATA}") from None
    table = [_encodable(row) for row in rows(run, kind, where)]
    # Collect names from all rows, because the first may be a void episode without metrics.
    names = dict.fromkeys(name for row in table for name in row)
    try:
        return pyarrow.table({name: [row.get(name) for row in table] for name in names})
    except (OverflowError, pyarrow.ArrowException) as error:
        raise ConfigError(
            f"{run.path}: does not fit into a table: {error}. Export to .jsonl, which has no such "
            "limits"
        ) from error


def to_dataset(
    run: Run,
    kind: str = "conversations",
    where: Filter | None = None,
    *,
    cache: Path | None = None,
) -> "datasets.Dataset":
    """Return a Hugging Face data set with a column `images`, one image for each `<image>`.

    Conversations have a column `messages`, as trainers for chat models expect. Rows with a missing
    frame are skipped.

    Args:
        run: the recorded run.
        kind: `turns` or `conversations`.
        where: which episodes; None for all.
        cache: a folder in which to keep the rows on disk; None keeps them in memory.

    Raises:
        ConfigError: as in `rows`; `datasets` is not installed, or there is nothing to write.
    """
    try:
        import datasets
        import pyarrow
    except ImportError:
        raise ConfigError(f"datasets is not installed; run: {extras.GET_DATA}") from None
    if kind == "episodes":
        raise ConfigError("kind='episodes' has no images or messages; use to_arrow")

    def whole() -> Iterator[dict[str, Any]]:
        for row in rows(run, kind, where):
            held = [run.frame_bytes(frame) for frame in row.pop("frames")]
            if all(held):
                yield _encodable(row) | {"images": [{"bytes": png, "path": None} for png in held]}

    if next(whole(), None) is None:
        if next(rows(run, kind, where), None) is None:
            raise _nothing(run, kind)
        raise ConfigError(f"{run.path}: every matching episode has a missing frame")
    with tempfile.TemporaryDirectory(prefix="agentrl-") as folder:
        # Use a new fingerprint, otherwise `datasets` would reuse a cached copy of a shorter run.
        try:
            return datasets.Dataset.from_generator(
                whole, features=_features(kind), cache_dir=str(cache or folder),
                keep_in_memory=cache is None, fingerprint=uuid.uuid4().hex,
                writer_batch_size=_ROWS_AT_ONCE,
            )  # fmt: skip
        except datasets.exceptions.DatasetGenerationError as error:
            cause = error.__cause__ or error
            if isinstance(cause, OverflowError | pyarrow.ArrowException):
                raise ConfigError(f"{run.path}: does not fit into a data set: {cause}") from cause
            raise cause from None


def write(
    run: Run,
    kind: str,
    path: Path,
    where: Filter | None = None,
    history: History | None = None,
) -> Counter[str]:
    """Write a table or a data set.

    Args:
        run: the recorded run.
        kind: `episodes`, `turns` or `conversations`.
        path: `.parquet`, `.csv` or `.jsonl`; without a suffix, a new folder for a Hugging Face
            data set.
        where: which episodes; None for all.
        history: see `rows`; only used for JSONL.

    Returns:
        The number of rows by episode label.

    Raises:
        ConfigError: as in `to_dataset`; there are no rows, the suffix is unknown, or the file
            cannot be written.
    """
    if path.suffix not in ("", ".jsonl", ".parquet", ".csv"):
        raise ConfigError(f"{path}: must end in .parquet, .csv or .jsonl, or be a new folder")
    if path.suffix == "" and path.exists():
        raise ConfigError(f"{path}: already exists; choose a new folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == "":
            return _write_folder(run, kind, path, where)
        with atomic_replace(path) as partial:
            labels = _write_file(run, kind, partial, path, where, history)
            # Raise here, so that an existing file stays unchanged.
            if not labels:
                raise _nothing(run, kind)
            return labels
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def _nothing(run: Run, kind: str) -> ConfigError:
    note = "" if kind == "episodes" else " (void and pruned episodes are skipped)"
    return ConfigError(
        f"{run.path}: no {kind} to write match{note}; agentrl episodes RUN lists all episodes"
    )


def _write_file(
    run: Run,
    kind: str,
    path: Path,
    out: Path,
    where: Filter | None,
    history: History | None,
) -> Counter[str]:
    """Write the rows to the temporary file `out`."""
    if path.suffix == ".jsonl":
        labels = Counter[str]()
        folder = images_folder(out)
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for row in rows(run, kind, where, history):
                if kind == "conversations":
                    row["images"] = [store_frame(run, frame, folder) for frame in row["frames"]]
                    if not all(row["images"]):
                        continue
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                labels[row["label"]] += 1
        return labels
    table = to_arrow(run, kind, where)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        import pyarrow
        from pyarrow import csv

        # CSV cells contain text, so lists and mappings become JSON.
        columns = {}
        for name in table.column_names:
            column = table.column(name)
            if pyarrow.types.is_nested(column.type):
                column = [json.dumps(value) for value in column.to_pylist()]
            columns[name] = column
        csv.write_csv(pyarrow.table(columns), path)
    return Counter(table.column("label").to_pylist()) if table.num_rows else Counter()


def images_folder(path: Path) -> Path:
    """Return the folder next to a JSONL file that contains its images."""
    return path.with_name(f"{path.stem}-images")


def store_frame(run: Run, frame: str, folder: Path) -> str | None:
    """Write a frame into a folder, unless it exists there.

    Returns:
        The frame's path relative to the folder's parent; None if the frame was not recorded.
    """
    file = folder / f"{frame}.png"
    if not file.is_file():
        if (content := run.frame_bytes(frame)) is None:
            return None
        folder.mkdir(exist_ok=True)
        try:
            with atomic_replace(file) as partial:
                partial.write_bytes(content)
        except OSError:
            # rmdir fails if the folder contains other images; keep them.
            with suppress(OSError):
                folder.rmdir()
            raise
    return f"{folder.name}/{file.name}"


def _write_folder(run: Run, kind: str, path: Path, where: Filter | None) -> Counter[str]:
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        dataset = to_dataset(run, kind, where, cache=partial / "cache")
        dataset.save_to_disk(str(partial / "whole"), max_shard_size=_SHARD_BYTES)
        (partial / "whole").rename(path)
        return Counter(dataset["label"])
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _features(kind: str) -> "datasets.Features":
    """Return the column types of a data set."""
    from datasets import Features, Image, List, Value

    text, integer, real, boolean = map(Value, ("string", "int64", "float64", "bool"))
    about = {
        "id": text, "split": text, "label": text, "step": integer, "seed": integer,
        "guided_turns": integer,
    }  # fmt: skip
    images, messages = {"images": List(Image())}, List({"role": text, "content": text})
    if kind == "conversations":
        return Features(
            {**about, "reward": real, "success": boolean, "messages": messages, **images}
        )
    return Features(
        {
            **about, "turn": integer, "instructions": text, "preceding": messages, "shown": text,
            "reply": text, "action": text, "readable": boolean, "reward": real, "env_reward": real,
            "advantage": real, "terminated": boolean, "truncated": boolean, "state_key": text,
            "action_rewards": List(real),
            "reply_ids": List(integer), "reply_logprobs": List(real), **images,
        }
    )  # fmt: skip


def _encodable(value: Any) -> Any:
    """Replace characters that some file formats cannot encode, in all texts."""
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def episode_row(summary: Summary) -> dict[str, Any]:
    """Return an episode's row, without its turns."""
    return {
        "id": summary.id, "split": summary.split, "label": summary.label, "step": summary.step,
        "time": summary.time, "env_id": summary.env_id, "group": summary.group,
        "member": summary.member, "seed": summary.seed, "outcome": summary.outcome.value,
        "truncated_by": summary.truncated_by, "cause": summary.cause, "error": summary.error,
        "device": summary.device,
        "success": summary.success, "turns": summary.turns, "tokens": summary.tokens,
        "seconds": summary.seconds, "env_reward": summary.env_reward, "reward": summary.reward,
        "config": summary.config, "removed": summary.removed,
        "starred": summary.starred, "note": summary.note,
        **{f"metrics/{name}": value for name, value in summary.metrics.items()},
        **{f"reward/{name}": sum(values) for name, values in summary.components.items()},
    }  # fmt: skip


def _turns(recorded: RecordedEpisode) -> Iterator[dict[str, Any]]:
    summary, episode = recorded.summary, recorded.episode
    last = len(episode.turns) - 1
    for number, turn in enumerate(episode.turns):
        if turn.guide is not None:
            continue
        preceding = [] if number else episode.preceding
        yield {
            **_about(summary), "guided_turns": episode.num_guided,
            "turn": number + 1, "instructions": episode.instructions,
            "preceding": [{"role": one.role, "content": one.text} for one in preceding],
            "shown": turn.shown,
            "frames": list(turn.frames), "reply": turn.reply, "action": json.dumps(turn.action),
            "action_rewards": [one.reward for one in turn.chunk],
            "readable": turn.parse_error is None,
            "reward": at(summary.rewards, number) or 0.0,
            "env_reward": turn.env_reward,
            "advantage": at(summary.advantages, number),
            "terminated": number == last and summary.outcome.value == "terminated",
            "truncated": number == last and summary.outcome.value == "truncated",
            "state_key": turn.state_key, "reply_ids": list(turn.reply_ids),
            "reply_logprobs": list(turn.reply_logprobs),
        }  # fmt: skip


def _conversations(recorded: RecordedEpisode, history: History) -> Iterator[dict[str, Any]]:
    """Yield the whole episode, or each turn's prompt and reply if prompts contain less."""
    summary, episode = recorded.summary, own_part(recorded.episode)
    # A trainer learns all replies of a conversation, so it must not have those of a guide.
    chats = [episode.messages()] if episode.turns else []
    if history != History():
        chats = [
            [*prompt_of(episode, n, history), EpisodeMessage(role="assistant", text=turn.reply)]
            for n, turn in enumerate(episode.turns)
        ]
    for messages, frames in map(chat_of, chats):
        yield {
            **_about(summary), "guided_turns": recorded.episode.num_guided,
            "reward": summary.reward, "success": summary.success,
            "messages": messages, "frames": frames,
        }  # fmt: skip


def own_part(episode: Episode) -> Episode:
    """Return an episode from the policy's first turn on, as if it had started there."""
    guided = episode.num_guided
    if not guided:
        return episode
    # Images of earlier messages are among the frames of the first turn, which a guide made.
    has_images = any(message.num_images for message in episode.preceding)
    preceding = () if has_images else episode.preceding
    return replace(episode, turns=episode.turns[guided:], preceding=preceding)


def prompt_of(episode: Episode, last: int, history: History) -> list[EpisodeMessage]:
    """Return the messages of a turn's prompt."""
    messages = episode.messages()
    start = len(messages) - 2 * len(episode.turns)
    first = 0 if history.turns is None else max(0, last + 1 - history.turns)
    shown = messages[start + 2 * first : start + 2 * last + 1]
    if history.screens is not None:
        without = 2 * max(0, last + 1 - first - history.screens)
        shown[:without] = [
            one if one.role == "assistant"
            else replace(one, text=one.text.replace(IMAGE, "").strip(), frames=())
            for one in shown[:without]
        ]  # fmt: skip
    return messages[:start] + shown


def chat_of(messages: Iterable[EpisodeMessage]) -> tuple[list[dict[str, str]], list[str]]:
    """Return messages as `{role, content}`, and one frame for each `<image>`."""
    chat, frames = [], list[str]()
    for message in messages:
        text = message.text
        # Don't mistake text written by the model for an image placeholder.
        if message.role == "assistant":
            text = text.replace(IMAGE, "<image >")
        # With run.frames=none, images were shown but not recorded.
        elif message.num_images != len(message.frames):
            text = IMAGE * len(message.frames) + text.replace(IMAGE, "")
        chat.append({"role": message.role, "content": text})
        frames += message.frames
    return chat, frames


def _about(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id, "split": summary.split, "label": summary.label, "step": summary.step,
        "seed": summary.seed,
    }  # fmt: skip

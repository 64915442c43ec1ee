"""Token ids of an episode as words."""

import json
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from agentrl.errors import ConfigError, describe_error
from agentrl.files import open_regular
from agentrl.types import Episode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

_IDS = 1 << 32
"""That a tokenizer can be asked for."""
_MODELS = ("start", "model")
"""Folders of a run that hold its tokenizer."""
_TOKENIZER = "tokenizer.json"
_MOST_BYTES = 256 << 20
"""Of a tokenizer's file; the largest of today's models have 33 MB."""
_MOST_SETTINGS = 4 << 20
"""Characters of a configuration, and of a summary."""


class Vocabulary:
    """The words of a run's model; ids stand for themselves where its tokenizer is not at hand.

    Args:
        run: the run's folder; `start` or `model` in it hold the tokenizer, or in the run whose
            model it played, as `agentrl eval RUN` does.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tokenizer: Tokenizer | None = None
        self._text = lru_cache(maxsize=65536)(self._decoded)

    def look(self) -> str | None:
        """Look for the tokenizer, which may come late; why there is none, or None where it is."""
        if self._tokenizer is not None:
            return None
        file = next((file for file in _places(self._run) if _is_file(file)), None)
        if file is None:
            return (
                f"Tokens are shown by their ids: there is no {_TOKENIZER} in start/ or model/ of "
                "this run, or of the one whose model it plays."
            )
        self._tokenizer, why = _opened(file)
        return why and f"Tokens are shown by their ids: {why}."

    def word(self, token_id: int) -> str:
        """The text of one token, once `look` has found a tokenizer."""
        known = self._tokenizer is not None and 0 <= token_id < _IDS
        return self._text(token_id) if known else f"[{token_id}]"

    def _decoded(self, token_id: int) -> str:
        """A part of a character is shown as its sign."""
        tokenizer = self._tokenizer
        assert tokenizer is not None, "asked once it is there"
        if tokenizer.id_to_token(token_id) is None:
            return f"[{token_id}]"
        text: str = tokenizer.decode([token_id], skip_special_tokens=False)
        return text


def _places(run: Path) -> Iterator[Path]:
    """Where the tokenizer may lie.

    What is recorded may be a stranger's, and names paths: of them only those count that end as a
    run's own do, in a folder with a `config.yaml`, and nothing but a tokenizer's JSON is read.
    """
    runs = (run, *(other for other in _others(run) if _is_file(other / "config.yaml")))
    return (folder / name / _TOKENIZER for folder in runs for name in _MODELS)


def _others(run: Path) -> Iterator[Path]:
    """Runs whose model this one may have played: beside it, where both were moved, or as named."""
    for name in (_model_of(run), _target_of(run)):
        if name is not None and name.name:
            yield run.absolute().parent / name.name
            yield name


def _model_of(run: Path) -> Path | None:
    """The run whose own model the configuration names."""
    try:
        path = Path(yaml.safe_load(_read(run / "config.yaml"))["model"]["path"])
    except (OSError, LookupError, TypeError, ValueError, RecursionError, yaml.YAMLError):
        return None
    return path.parent if path.is_absolute() and path.name in _MODELS else None


def _target_of(run: Path) -> Path | None:
    """What an evaluation was pointed at."""
    try:
        return Path(json.loads(_read(run / "summary.json"))["target"])
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return None


def _read(file: Path, most: int = _MOST_SETTINGS) -> str:
    with open(file, encoding="utf-8", opener=open_regular) as opened:
        text = opened.read(most + 1)
    if len(text) > most:
        raise ValueError(f"it has more than {most:,} characters")
    return text


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long a name, or a folder that is closed to us
        return False


def _opened(file: Path) -> "tuple[Tokenizer | None, str | None]":
    """The tokenizer, or why there is none."""
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(_read(file, _MOST_BYTES)), None
    except ImportError:
        return None, "`tokenizers` is not installed (pip install 'agentrl[train]')"
    except Exception as error:  # broken: the ids are still true
        log.warning("%s: tokens are shown by their ids: %s", file, describe_error(error))
        return None, f"{file.parent.name}/{file.name} cannot be read"


def of_turn(
    episode: Episode,
    number: int,
    words: Vocabulary,
    advantages: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Prompt and reply of a turn, token by token; `note` says why ids stand for words.

    Args:
        episode: as it was played.
        number: of the turn, from 1.
        words: of its model.
        advantages: [T][R], where the tokens of a turn differ; None where they do not.

    Raises:
        ConfigError: it has no such turn.
    """
    if not 1 <= number <= len(episode.turns):
        raise ConfigError(f"{episode.id} has {len(episode.turns)} turns, and no turn {number}")
    turn, why = episode.turns[number - 1], words.look()
    credit = advantages[number - 1] if advantages else [None] * len(turn.reply_ids)
    sampled = zip(turn.reply_ids, turn.reply_logprobs, turn.reply_versions, credit, strict=True)
    return {
        "note": why,
        "prompt": _runs(turn.prompt_ids, words),
        "reply": [
            {
                "id": id,
                "text": words.word(id),
                "logprob": logprob,
                "version": version,
                "advantage": advantage,
            }
            for id, logprob, version, advantage in sampled
        ],
    }


def _runs(ids: tuple[int, ...], words: Vocabulary) -> list[dict[str, Any]]:
    """Tokens of a prompt, each row of the same one, such as those of a picture, as one entry."""
    found: list[dict[str, Any]] = []
    for id in ids:
        if found and found[-1]["id"] == id:
            found[-1]["count"] += 1
        else:
            found.append({"id": id, "text": words.word(id), "count": 1})
    return found

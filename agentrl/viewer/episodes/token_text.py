"""Show a turn's tokens as text, with log-probabilities, alternatives, versions and advantages."""

import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError, describe_error
from agentrl.files import open_regular
from agentrl.runs.file_reading import as_object
from agentrl.runs.run_folder import CONFIG_FILE, RunFolder
from agentrl.text.formatting import pluralize
from agentrl.types import Episode
from agentrl.viewer.episodes.coordinate_probabilities import coordinates_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

_MAX_ID = 1 << 32
"""Limit of token ids; larger ids overflow in the tokenizers library."""
_MODELS = ("start", "model")
"""Folders of a run that contain its tokenizer."""
_TOKENIZER = "tokenizer.json"
_MAX_TOKENIZER = 256 << 20
"""Maximum length of a tokenizer file in characters; the largest current files have 33 MB."""


class TokenVocabulary:
    """Vocabulary of a run's model; without a tokenizer, tokens appear as ids.

    Args:
        run: the run's folder. Its `start` and `model` folders are searched for a tokenizer, and
            the same folders of the run whose model it played (as with `agentrl eval RUN`).
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tokenizer: Tokenizer | None = None
        self._text = lru_cache(maxsize=65536)(self._decoded)

    def look(self) -> str | None:
        """Load the tokenizer, which may appear later; return why it is missing, or None."""
        if self._tokenizer is not None:
            return None
        file = next((file for file in _places(self._run) if _is_file(file)), None)
        if file is None:
            return (
                f"Tokens are shown as ids because there is no {_TOKENIZER} in start/ or model/ of "
                "this run, or of the run whose model it played."
            )
        self._tokenizer, why = _opened(file)
        return why and f"Tokens are shown as ids because {why}."

    def word(self, token_id: int) -> str:
        """Return a token's text, or its id if `look` has not found a tokenizer."""
        known = self._tokenizer is not None and 0 <= token_id < _MAX_ID
        return self._text(token_id) if known else f"[{token_id}]"

    def _decoded(self, token_id: int) -> str:
        """Return a token's text; an incomplete character becomes U+FFFD."""
        tokenizer = self._tokenizer
        assert tokenizer is not None, "the tokenizer is not loaded"
        if tokenizer.id_to_token(token_id) is None:
            return f"[{token_id}]"
        text: str = tokenizer.decode([token_id], skip_special_tokens=False)
        return text


def _places(run: Path) -> Iterator[Path]:
    """Yield possible tokenizer files of this run and of the run whose model it played."""
    files, named = RunFolder(run), list[Path]()
    path = as_object(files.read_config().get("model")).get("path")
    if isinstance(path, str) and Path(path).is_absolute() and Path(path).name in _MODELS:
        named.append(Path(path).parent)
    if isinstance(target := files.read_summary().get("target"), str):
        named.append(Path(target))
    # Both runs may have been moved, so first look for the other run next to this run.
    others = [p for name in named if name.name for p in (run.absolute().parent / name.name, name)]
    # The recording may come from an untrusted source and name any path. So use a path only if it
    # leads to a folder with a `config.yaml`, and read only `tokenizer.json` there.
    for folder in (run, *(other for other in others if _is_file(other / CONFIG_FILE))):
        yield from (folder / name / _TOKENIZER for name in _MODELS)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example, the name is too long, or a folder cannot be read
        return False


def _opened(file: Path) -> "tuple[Tokenizer | None, str | None]":
    """Load a tokenizer, or return why it is missing."""
    try:
        from tokenizers import Tokenizer

        with open(file, encoding="utf-8", opener=open_regular) as opened:
            text = opened.read(_MAX_TOKENIZER + 1)
        if len(text) > _MAX_TOKENIZER:
            raise ValueError(f"more than {_MAX_TOKENIZER:,} characters")
        return Tokenizer.from_str(text), None
    except ImportError:
        return None, "`tokenizers` is not installed (pip install 'agentrl-screens[train]')"
    except Exception as error:  # The library raises plain exceptions for damaged files.
        log.warning("%s: tokens are shown as ids because %s", file, describe_error(error))
        return None, f"{file.parent.name}/{file.name} cannot be read"


def turn_tokens(
    episode: Episode,
    number: int,
    words: TokenVocabulary,
    advantages: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Return a turn's prompt and reply by token; `note` explains why tokens appear as ids.

    Raises:
        ConfigError: the turn does not exist.
    """
    if not 1 <= number <= len(episode.turns):
        raise ConfigError(
            f"{episode.id} has no turn {number}, only {pluralize(len(episode.turns), 'turn')}"
        )
    turn, why = episode.turns[number - 1], words.look()
    by_token = advantages[number - 1] if advantages else [None] * len(turn.reply_ids)
    top = turn.reply_top_logprobs or ((),) * len(turn.reply_ids)
    sampled = zip(
        turn.reply_ids, turn.reply_logprobs, turn.reply_versions, by_token, top, strict=True
    )
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
                "top": [{"id": id, "text": words.word(id), "logprob": p} for id, p in top],
            }
            for id, logprob, version, advantage, top in sampled
        ],
        "has_top": bool(turn.reply_top_logprobs),
        "coordinates": coordinates_of(turn, words.word) if turn.reply_top_logprobs else [],
    }


def _runs(ids: tuple[int, ...], words: TokenVocabulary) -> list[dict[str, Any]]:
    """Run-length encode a prompt's tokens, so that an image is one entry with a count."""
    runs: list[dict[str, Any]] = []
    for id in ids:
        if runs and runs[-1]["id"] == id:
            runs[-1]["count"] += 1
        else:
            runs.append({"id": id, "text": words.word(id), "count": 1})
    return runs

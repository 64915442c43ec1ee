"""Token ids of an episode as words."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.errors import ConfigError, told
from agentrl.types import Episode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

_IDS = 1 << 32
"""That a tokenizer can be asked for."""


class Vocabulary:
    """The words of a run's model; ids stand for themselves where its tokenizer is not at hand.

    Args:
        run: the run's folder; `start` or `model` in it hold the tokenizer.
    """

    def __init__(self, run: Path) -> None:
        self._folders = (run / "start", run / "model")
        self.word = lru_cache(maxsize=65536)(self._word)

    def _word(self, token_id: int) -> str:
        """The text of one token; a part of a character is shown as its sign."""
        tokenizer = self._tokenizer()
        if tokenizer is None or not 0 <= token_id < _IDS or tokenizer.id_to_token(token_id) is None:
            return f"[{token_id}]"
        text: str = tokenizer.decode([token_id], skip_special_tokens=False)
        return text

    def _tokenizer(self) -> "Tokenizer | None":
        file = next((f for d in self._folders if (f := d / "tokenizer.json").is_file()), None)
        return None if file is None else _opened(str(file))


@lru_cache(maxsize=8)
def _opened(file: str) -> "Tokenizer | None":
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(file)
    except Exception as error:  # not installed, or broken: the ids are still true
        log.warning("%s: tokens are shown by their ids: %s", file, told(error))
        return None


def of_turn(
    episode: Episode,
    number: int,
    words: Vocabulary,
    advantages: Sequence[Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Prompt and reply of a turn, token by token.

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
    turn = episode.turns[number - 1]
    credit = advantages[number - 1] if advantages else [None] * len(turn.reply_ids)
    sampled = zip(turn.reply_ids, turn.reply_logprobs, turn.reply_versions, credit, strict=True)
    return {
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

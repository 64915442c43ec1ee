"""Checks of a model family's adapter.

The setting `path` names a model of the family; by default it is the built-in tiny model, a
Qwen2.5-VL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.check.extension_catalog import reference
from agentrl.check.support import model_comparison
from agentrl.check.support.tiny_model_folder import tiny_folder
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models import ModelAdapter, load_model

SETTINGS = ("path", "chat")
_TOLERANCE = 1e-4
_TEXT_IDS = [33, 34, 35]
"""Token ids of an arbitrary text, placed between images."""


def check_it_reads_the_model(target: type[ModelAdapter], settings: Mapping[str, Any]) -> None:
    """The adapter reads the model's folder and bans its own image tokens."""
    adapter = _encoder(target, settings).model_adapter
    token = adapter.image_token_id
    assert token is None or token in adapter.banned_token_ids, (
        f"banned_token_ids={adapter.banned_token_ids} lacks image_token_id={token}: a policy could "
        "sample an image"
    )
    assert token is None or adapter.image_text, (
        "image_text is empty: name what the chat template writes for an image"
    )


def check_prompts_equal_those_of_transformers(
    target: type[ModelAdapter], settings: Mapping[str, Any]
) -> None:
    """Image tokens and prompts match the model's own processor and chat template."""
    check_template(_encoder(target, settings), folder_of(settings))


def check_images_survive_another_scaling(
    target: type[ModelAdapter], settings: Mapping[str, Any]
) -> None:
    """A scaled image keeps its size when it is scaled again, and has one run of image tokens."""
    adapter = _encoder(target, settings).model_adapter
    if adapter.image_token_id is None:
        return
    for width, height in ((360, 800), (1080, 600)):
        once = adapter.scale(np.zeros((height, width, 3), np.uint8), None, 200_000)
        again = adapter.scale(once, None, 200_000)
        assert once.shape == again.shape, (
            f"scale() makes {once.shape[1]}x{once.shape[0]} of {width}x{height}, but "
            f"{again.shape[1]}x{again.shape[0]} of that"
        )
        # Between texts, because a run of image tokens at either end could be found by chance.
        ids = [*_TEXT_IDS, *adapter.image_markup(once), *_TEXT_IDS]
        short = adapter.collapse_image_tokens(ids, [once])
        assert short.count(adapter.image_token_id) == 1, (
            f"collapse_image_tokens() leaves {short.count(adapter.image_token_id)} image tokens "
            "of one image"
        )
        count = adapter.positions(ids, [once]).shape[-1]
        assert count == len(ids), f"positions() returns {count} positions for {len(ids)} tokens"


def check_logprobs_equal_those_of_transformers(
    target: type[ModelAdapter], settings: Mapping[str, Any]
) -> None:
    """Log-probabilities of packed conversations equal transformers' forward pass of each alone."""
    folder, encoder = folder_of(settings), _encoder(target, settings)
    samples = model_comparison.episodes(encoder)
    model = load_model(folder, model_adapter=encoder.model_adapter)
    ours = model_comparison.packed_logprobs(encoder, model, samples)
    theirs = model_comparison.transformers_logprobs(folder, encoder, samples)
    worst = model_comparison.difference(ours, theirs)
    assert worst < _TOLERANCE, (
        f"log-probabilities differ by up to {worst:.2g}: check positions(), pixels(), logits() and "
        "attends_within_images"
    )


def folder_of(settings: Mapping[str, Any]) -> Path:
    """Return the folder of the model that `path` names, by default the tiny model's."""
    return Path(settings["path"]) if "path" in settings else tiny_folder()


def _encoder(target: type[ModelAdapter], settings: Mapping[str, Any]) -> ChatEncoder:
    chat = str(settings.get("chat", "auto"))
    return ChatEncoder(folder_of(settings), adapter=reference(target), chat=chat)

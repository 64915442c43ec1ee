"""Compare our prompts with transformers' rendering of the model's own chat template."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.errors import ConfigError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.chat.template_rendering import (
    TODAY,
    chat_template,
    render,
    takes_parts,
    template_variables,
)
from agentrl.policies.models.model_adapter import NO_FOREIGN_CODE
from agentrl.types import IMAGE, Message, Prompt

log = logging.getLogger(__name__)
_SYSTEM, _REPLY = "Play the game.", "I wait."
_TEXTS = ("What now?", "And now?")
# Sizes (width, height) of the images whose tokens are compared.
_SIZES = ((64, 64), (360, 800), (800, 360))
_MAX_PIXELS = 200_000
# Number of tokens that a message shows before and after the first difference.
_AROUND = 12


def check_template(encoder: ChatEncoder, path: Path, *, strict: bool = True) -> str:
    """Encode a conversation as a job does and with the model's own template, and compare.

    Args:
        encoder: encoder of the model.
        path: the model's folder.
        strict: whether a difference is an error rather than a warning.
    """
    sees = encoder.model_adapter.image_token_id is not None
    import transformers

    loader = "AutoProcessor" if sees else "AutoTokenizer"
    with boundary(ConfigError, f"model.path={path} cannot be loaded with {loader}"):
        processor = getattr(transformers, loader).from_pretrained(path, **NO_FOREIGN_CODE)
    if sees:
        check_image_tokens(encoder, processor)
    if not chat_template(path):
        return "the model has no chat template"
    theirs = _TemplatePrompts(encoder, path, processor)
    try:
        expected = theirs.prompts()
    except Exception as error:  # a template is code and may raise anything
        if strict:
            raise ConfigError(f"model.path={path}: the chat template fails: {error}") from error
        log.warning("the model's own chat template fails, also when serving the model: %s", error)
        return "the model's own template fails"
    first, second = _own_prompts(encoder)
    reply = len(first.token_ids) + len(encoder.reply_ids(_REPLY)) - 1
    for ours, ids in ((first.token_ids, expected[0]), (second.token_ids[reply:], expected[1])):
        if list(ours) != list(ids):
            message = theirs.difference(ours, ids)
            if strict:
                raise ConfigError(f"model.path={path}: {message}")
            log.warning("%s", message)
            return "prompts differ from those of the model's own template"
    return "prompts are those of the model's own template"


def check_image_tokens(encoder: ChatEncoder, processor: Any) -> None:
    """Compare an adapter's image tokens with those of the model's own processor.

    Raises:
        ConfigError: the adapter contradicts the processor or itself.
    """
    adapter = encoder.model_adapter
    name = f"model.adapter: {type(adapter).__name__}"
    for width, height in _SIZES:
        image = adapter.scale(np.zeros((height, width, 3), np.uint8), None, _MAX_PIXELS)
        size = f"an image of {image.shape[1]}x{image.shape[0]} pixels"
        own, markup = adapter.num_image_tokens(image), adapter.image_markup(image)
        if (counted := markup.count(adapter.image_token_id or 0)) != own:
            raise ConfigError(
                f"{name}: num_image_tokens returns {own} for {size}, but image_markup has "
                f"{counted} image tokens; they must agree"
            )
        found = processor(
            text=[adapter.image_text], images=[[image]], **adapter.processor_arguments()
        )
        theirs = [int(id) for id in found["input_ids"][0]].count(adapter.image_token_id or 0)
        if own != theirs:
            raise ConfigError(
                f"{name}: num_image_tokens returns {own} for {size}, but the model's own processor "
                f"produces {theirs}; they must agree"
            )


def _own_prompts(encoder: ChatEncoder) -> tuple[Prompt, Prompt]:
    """Encode a first message, a reply and a second message; return both prompts."""
    image = np.zeros((64, 64, 3), np.uint8)
    images = (image,) if encoder.model_adapter.image_token_id is not None else ()
    conversation = Conversation(encoder, _SYSTEM)
    prompts = []
    for text in _TEXTS:
        content = f"{IMAGE * len(images)}{text}"
        prompts.append(conversation.observe(Message(role="user", text=content, images=images)))
        conversation.answer(encoder.reply_ids(_REPLY))
    return prompts[0], prompts[1]


class _TemplatePrompts:
    """The same prompts, rendered by transformers."""

    def __init__(self, encoder: ChatEncoder, path: Path, processor: Any) -> None:
        self._encoder, self._processor = encoder, processor
        self._sees = encoder.model_adapter.image_token_id is not None
        self._template = chat_template(path)
        self._variables = template_variables(path)
        self._takes_parts = self._sees and takes_parts(self._template, self._variables)

    def prompts(self) -> tuple[list[int], list[int]]:
        """Return the first prompt's ids, and the second prompt's from the end of the reply."""
        question, again = (self._message("user", text) for text in _TEXTS)
        system, reply = self._message("system", _SYSTEM), self._message("assistant", _REPLY)
        try:
            first = self._render([system, question])
        except Exception as error:  # templates reject system messages with all kinds of errors
            log.debug("no system message: %s", error)
            question = self._message("user", f"{_SYSTEM}\n\n{_TEXTS[0]}")
            first = self._render([question])
        second = self._render([question, reply, again])
        return self._ids(first), self._ids(second.partition(_REPLY)[2])

    def _message(self, role: str, text: str) -> dict[str, Any]:
        if not self._sees:
            return {"role": role, "content": text}
        parts = [{"type": "text", "text": text}]
        if role == "user":
            system, found, rest = text.partition(f"{_SYSTEM}\n\n")
            texts = (f"{_SYSTEM}\n\n", rest) if found else ("", system)
            parts = [{"type": "text", "text": t} for t in texts if t]
            parts.insert(len(parts) - 1, {"type": "image"})
        if self._takes_parts:
            return {"role": role, "content": parts}
        image = self._encoder.model_adapter.image_text
        return {"role": role, "content": "".join(part.get("text", image) for part in parts)}

    def _render(self, messages: Sequence[dict[str, Any]]) -> str:
        options = self._encoder.chat_model.options
        # Render in our sandbox first, which limits time and length, unlike transformers.
        render(self._template, messages, {**self._variables, **options})
        dated = {"strftime_now": TODAY.strftime} if "strftime_now" in self._template else {}
        text = self._processor.apply_chat_template(
            messages,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            **dated,
            **options,
        )
        return str(text)

    def _ids(self, text: str) -> list[int]:
        if not self._sees:
            return list(self._processor(text, add_special_tokens=False)["input_ids"])
        ours = _own_prompts(self._encoder)[0].images
        found = self._processor(
            text=[text],
            images=[list(ours)],
            add_special_tokens=False,
            **self._encoder.model_adapter.processor_arguments(),
        )
        return list(map(int, found["input_ids"][0]))

    def difference(self, ours: Sequence[int], theirs: Sequence[int]) -> str:
        """Describe both prompts near the first difference."""
        pairs = enumerate(zip(ours, theirs, strict=False))
        start = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        near = slice(max(0, start - _AROUND), start + _AROUND)
        decode = getattr(self._processor, "tokenizer", self._processor).decode
        return (
            f"prompts differ from those of the model's own chat template from token {start} on. "
            f"agentrl: {list(ours[near])} = {decode(list(ours[near]))!r}; "
            f"the template: {list(theirs[near])} = {decode(list(theirs[near]))!r}"
        )

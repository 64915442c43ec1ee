"""Policy that plays with the model of a chat completions server."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cv2

from agentrl.config import History
from agentrl.policies.chat.history import PromptHistory
from agentrl.policies.engines.endpoint import Endpoint
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.model_policy import draw_seed
from agentrl.policies.policy import Answer
from agentrl.types import IMAGE, Image, Message, Prompt, Reply

Part = dict[str, Any]
"""A message, or a part of one, in the API's format."""


class EndpointPolicy:
    """Answers with a server's model; needs no local model.

    Args:
        endpoint: started.
        history: the part of the conversation that is sent; None sends all.
        sampling: of every reply; its seed is replaced each turn.
        scale: resizes images; None keeps them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        history: History | None = None,
        sampling: Sampling | None = None,
        scale: Callable[[Image], Image] | None = None,
    ) -> None:
        self.endpoint, self.history, self.scale = endpoint, history, scale
        self.sampling = sampling or Sampling()

    def start_episode(self, instructions: str, seed: int) -> "EndpointSession":
        """Start an episode, with a seed for its sampling."""
        return EndpointSession(self, instructions, seed)


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A message, and the reply to it if there is one yet."""

    question: Part
    images: tuple[Image, ...]
    answer: Part | None = None


class EndpointSession:
    """One episode played by a server's model.

    Args:
        policy: provides the server.
        instructions: the system message.
        seed: of the sampling.
    """

    def __init__(self, policy: EndpointPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._history = PromptHistory(policy.history)
        text = self._history.instructions(instructions)
        self._preamble = [{"role": "system", "content": text}] if text else []
        self._exchanges: list[_Exchange] = []

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The server's reply; None if the conversation exceeds its model's context.

        Raises:
            EngineError: the server failed.
            ValueError: the number of `<image>` placeholders and of images differ.
        """
        policy = self._policy
        # In a thread: scaling and compressing a screen takes tens of milliseconds.
        self._exchanges.append(
            await asyncio.to_thread(self._exchange, self._history.with_memory(message))
        )
        exchanges = self._history.visible(self._exchanges)
        messages: list[Part] = [*self._preamble]
        for exchange in exchanges:
            messages += [exchange.question, *([exchange.answer] if exchange.answer else [])]
        sampling = replace(policy.sampling, seed=draw_seed(self._seed, len(self._exchanges) - 1))
        reply = await policy.endpoint.chat(messages, sampling)
        if reply is None:
            return None
        self._exchanges[-1].answer = {"role": "assistant", "content": reply.text}
        self._history.remember(reply.text)
        images = tuple(image for exchange in exchanges for image in exchange.images)
        return Answer(
            prompt=Prompt(token_ids=reply.prompt_ids, images=images),
            reply=Reply(token_ids=reply.reply_ids, logprobs=reply.logprobs, version=0),
            text=reply.text,
        )

    def _exchange(self, message: Message) -> _Exchange:
        scale = self._policy.scale
        images = tuple(map(scale, message.images)) if scale else message.images
        return _Exchange(question=to_api_message(replace(message, images=images)), images=images)

    def close(self) -> None:
        """No-op: the server keeps no state between turns."""


def to_api_message(message: Message) -> Part:
    """A message in the API's format: text, with a PNG in place of each `<image>`.

    Raises:
        ValueError: the number of `<image>` placeholders and of images differ.
    """
    first, *pieces = message.text.split(IMAGE)
    if len(pieces) != len(message.images):
        raise ValueError(
            f"a message with {len(pieces)} {IMAGE} placeholders has {len(message.images)} images"
        )
    if not pieces:
        return {"role": message.role, "content": first}
    parts: list[Part] = [{"type": "text", "text": first}]
    for image, piece in zip(message.images, pieces, strict=True):
        parts.append({"type": "image_url", "image_url": {"url": _png(image)}})
        parts.append({"type": "text", "text": piece})
    return {"role": message.role, "content": [p for p in parts if p.get("text") != ""]}


def _png(image: Image) -> str:
    """An image as a data URL."""
    success, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert success, f"OpenCV cannot encode {image.shape} as PNG"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"

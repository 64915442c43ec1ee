"""Rewards computed by a server over HTTP: `agentrl serve-reward`, or an OpenRLHF server."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.data import openrlhf_reward_protocol
from agentrl.errors import ConfigError, RewardError
from agentrl.rewards.http_client import HttpClient, data_uri
from agentrl.text.name_suggestions import known_names


class Remote:
    """Requests the rewards of episodes from a server; a batch function.

    If the server is unreachable or busy, the request is retried with exponential backoff.
    Keep `deadline_s` below `rollout.reward_deadline_s`.

    Args:
        url: the server's URL, such as `http://127.0.0.1:8765`.
        deadline_s: deadline for all attempts of a call together.
        attempts: maximum number of attempts.
        images: whether to send images, as PNG.

    Raises:
        ConfigError: invalid URL, deadline or number of attempts.
    """

    def __init__(
        self, url: str, deadline_s: float = 30.0, attempts: int = 5, images: bool = False
    ) -> None:
        if deadline_s <= 0:
            raise ConfigError(f"rewards: deadline_s={deadline_s} must be above 0")
        self._client = HttpClient(
            self._address(str(url)), attempts, "agentrl serve-reward starts a server"
        )
        self._deadline_s, self.reads_images = deadline_s, images

    def __call__(self, reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per episode.

        Raises:
            RewardError: the server returned no valid rows in time.
        """
        answer = self._client.post(
            self._content(reward_inputs),
            time.monotonic() + self._deadline_s,
            os.environ.get("AGENTRL_REWARD_TOKEN"),
        )
        return self._rows(answer, len(reward_inputs))

    def _address(self, url: str) -> str:
        return f"{url.rstrip('/')}/score"

    def _content(self, reward_inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"inputs": [self._payload(inputs) for inputs in reward_inputs]}

    def _payload(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        texts = {name: value for name, value in inputs.items() if not _holds_images(value)}
        held = {"images": inputs.get("images", ()), "screens": inputs.get("screens", ())}
        if len(held["images"]) == len(held["screens"]):  # both hold the same images
            del held["screens"]
        sent = held if self.reads_images else {"images": ()}
        return texts | {name: [*map(data_uri, images)] for name, images in sent.items()}

    def _rows(self, answer: bytes, count: int) -> list[dict[str, Any]]:
        try:
            rows = json.loads(answer)["rows"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RewardError(
                f"{self._client.url}: the response has no rows: {answer[:80]!r}"
            ) from None
        if not isinstance(rows, list) or len(rows) != count:
            received = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise RewardError(
                f"{self._client.url}: the server returned {received} rows for {count} episodes"
            )
        return rows


class OpenRLHF(Remote):
    """Requests rewards as OpenRLHF and LMM-R1 do with `--remote_rm_url`; a batch function.

    Args:
        url: the whole URL, such as `http://127.0.0.1:5000/get_reward`.
        prompt_key: the data set's column to send as `prompts`, such as `message` for LMM-R1's
            verifiers, which use it to look up the answer; None sends the prompt's text as written
            by the model's chat template.
        deadline_s: deadline for all attempts of a call together.
        attempts: maximum number of attempts.

    Raises:
        ConfigError: see `Remote`.
    """

    def __init__(
        self,
        url: str,
        prompt_key: str | None = None,
        deadline_s: float = 30.0,
        attempts: int = 5,
    ) -> None:
        super().__init__(url, deadline_s, attempts)
        self._prompt_key = prompt_key

    def _address(self, url: str) -> str:
        return url

    def _content(self, reward_inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        key = self._prompt_key
        for inputs in reward_inputs:
            if key is not None and key not in inputs:
                raise ConfigError(
                    f"rewards: prompt_key={key}: no column has this name"
                    f"{known_names(key, inputs, label='There are')}"
                )
        return openrlhf_reward_protocol.request_of(reward_inputs, key)

    def _rows(self, answer: bytes, count: int) -> list[dict[str, Any]]:
        try:
            return openrlhf_reward_protocol.rows_of(json.loads(answer), count)
        except (ValueError, RecursionError) as error:
            raise RewardError(f"{self._client.url}: {error}: {answer[:80]!r}") from None


def _holds_images(value: Any) -> bool:
    """Return whether a value is an image or a list of images."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, np.ndarray)

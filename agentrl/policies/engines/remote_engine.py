"""A chat completions server as an engine; its model plays, but cannot be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl import extras
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.policies.engines.endpoint import Endpoint, read_api_key
from agentrl.policies.engines.engine import (
    ChatEngine,
    Completion,
    EngineCapabilities,
    EngineSettings,
    Sampling,
)


class RemoteEngine(ChatEngine):
    """The server of `rollout.endpoint`.

    Raises:
        ConfigError: the HTTP client is not installed, or the named API key is not set.
    """

    capabilities = EngineCapabilities(
        trains=False,
        needs_model=False,
        samples_top_p=True,
        reports_top_logprobs=True,
        packages={"httpx2": extras.NO_REMOTE},
    )

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._endpoint = Endpoint(
            settings.endpoint,
            deadline_s=settings.deadline_s,
            start_deadline_s=settings.start_deadline_s,
            in_flight=settings.concurrency,
        )

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        read_api_key(rollout.endpoint)
        if rollout.engine_kwargs:
            raise ConfigError(
                f"rollout.engine_kwargs={rollout.engine_kwargs}: not used with a remote server; "
                "put additional fields of requests into rollout.endpoint.extra_body"
            )

    async def start(self) -> None:
        await self._endpoint.start()
        self.model = self._endpoint.model

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling
    ) -> Completion | None:
        return await self._endpoint.chat(messages, sampling)

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        await self._endpoint.close()

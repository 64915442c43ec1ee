"""OpenEnv client as a Gymnasium environment (`openenv://HOST:PORT`)."""

import json
import urllib.request
from contextlib import ExitStack
from http.client import HTTPException
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from agentrl.data.gymnasium_spaces import AnyText
from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.environments.env_server import MAX_BYTES, OpaqueSpace
from agentrl.text.formatting import quoted

_MALFORMED = (AttributeError, KeyError, TypeError)
"""Errors raised when reading a response of unexpected form."""


class OpenEnvClient(gymnasium.Env[Any, Any]):
    """An environment on an OpenEnv server, whose schema defines the fields of actions.

    Observations are passed on unchanged. An action that the server refuses changes nothing;
    `info["refused"]` says why.

    Args:
        agentrl_target: HOST:PORT.
        agentrl_deadline_s: time limit for each call, in seconds.
        **kwargs: arguments for each reset, in addition to the seed.

    Raises:
        EnvError, ConfigError: no OpenEnv server answers, or its action schema is not supported.
    """

    observation_space = OpaqueSpace("an observation of OpenEnv")
    _socket: Any
    _seen: dict[str, Any]

    def __init__(self, agentrl_target: str, agentrl_deadline_s: float = 60.0, **kwargs: Any):
        self._target, self._kwargs, self._deadline_s = agentrl_target, kwargs, agentrl_deadline_s
        self._socket, self._seen, self._session = None, {}, ExitStack()
        try:
            url = f"http://{agentrl_target}/schema"
            with urllib.request.urlopen(url, timeout=agentrl_deadline_s) as answer:
                self.action_space = _space_of(json.loads(answer.read(MAX_BYTES))["action"])
        except (OSError, ValueError, *_MALFORMED, HTTPException) as error:
            raise EnvError(
                f"openenv://{agentrl_target} is not an OpenEnv server: {error!r}"
            ) from error

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See gymnasium.Env.reset."""
        self._seen = self._ask("reset", {"seed": seed, **self._kwargs, **(options or {})})
        return self._seen["observation"], self._seen.get("metadata") or {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step."""
        # JSON cannot encode numpy numbers.
        plain = {key: v.item() if hasattr(v, "item") else v for key, v in action.items()}
        answer = self._ask("step", plain)
        self._seen = answer = {**self._seen, "reward": 0.0, **answer}
        info = {"refused": answer.pop("refused", None)} | (answer.get("metadata") or {})
        try:
            reward = float(answer["reward"] or 0)
        except (TypeError, ValueError):
            raise self._malformed("step", answer) from None
        return answer["observation"], reward, answer["done"], False, info

    def close(self) -> None:
        """End the session on the server."""
        self._session.close()
        self._socket = None

    def _ask(self, what: str, data: dict[str, Any]) -> dict[str, Any]:
        """Return the server's answer; without one, end the session and raise EnvError."""
        try:
            if self._socket is None:
                opened = connect(f"ws://{self._target}/ws", max_size=MAX_BYTES)
                self._socket = self._session.enter_context(opened)
            self._socket.send(json.dumps({"type": what, "data": data}))
            answer = json.loads(self._socket.recv(timeout=self._deadline_s))
        except (OSError, ValueError, WebSocketException) as error:
            self.close()
            raise EnvError(f"openenv://{self._target}: {what}: {error!r}") from error
        try:
            found: dict[str, Any] = answer["data"]
            if answer["type"] == "observation":
                own = found["observation"].pop("metadata", None)
                return {"done": False, **found, "metadata": found.get("metadata") or own}
            # An action that violates the schema is the agent's mistake.
            if what == "step" and found["code"] == "VALIDATION_ERROR":
                return {"refused": json.dumps(found.get("errors"), default=str)[:500]}
            why = f"{found['code']}: {found['message']}"
        except _MALFORMED:
            raise self._malformed(what, answer) from None
        self.close()
        raise EnvError(f"openenv://{self._target}: {what}: {why}")

    def _malformed(self, what: str, answer: Any) -> EnvError:
        self.close()
        return EnvError(
            f"openenv://{self._target}: {what}: {quoted(answer, 200)} is not a valid OpenEnv "
            "response; the server may use a different version"
        )


def _space_of(schema: dict[str, Any]) -> spaces.Dict:
    """Return the space of an action's fields, omitting optional fields of unsupported types."""
    found: dict[str, gymnasium.Space[Any]] = {}
    for name, field in schema.get("properties", {}).items():
        kind = field.get("type")
        if kind in ("integer", "number"):
            most, dtype = (2.0**53, np.int64) if kind == "integer" else (np.inf, np.float64)
            low, high = field.get("minimum", -most), field.get("maximum", most)
            found[name] = spaces.Box(low, high, (), dtype)
        elif kind in ("string", "boolean"):
            found[name] = AnyText() if kind == "string" else spaces.Discrete(2)
        elif name in schema.get("required", ()):
            raise ConfigError(
                f"env.id: actions require {name!r}, which is neither a number nor a string"
            )
    return spaces.Dict(found)

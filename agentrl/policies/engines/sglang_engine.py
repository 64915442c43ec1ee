"""An engine that calls SGLang through its HTTP API, with token ids in prompts and replies.

The engine starts a server, or connects to a running one (`rollout.engine_kwargs={url: ...}`).
Either way, the server must see the same files: new weights are sent by `/update_weights_from_disk`.
"""

from __future__ import annotations

import ast
import asyncio
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import extras
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError, boundary
from agentrl.policies.engines.chat_completions_format import data_url
from agentrl.policies.engines.engine import (
    EngineCapabilities,
    EngineSettings,
    Sampling,
    TokenEngine,
    class_in_source,
    field_names,
    most_probable,
    parallel_size,
)
from agentrl.policies.engines.sglang_server import SGLangClient, SGLangServer
from agentrl.policies.engines.weight_checks import check_digest, check_header
from agentrl.policies.models import load_on_meta
from agentrl.types import Prompt, Reply

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")
# Logit bias of banned tokens, finite because JSON has no infinity.
_NEVER = -1e9


class SGLangEngine(TokenEngine):
    """Generates with an SGLang server, version 0.5 or newer.

    Args:
        settings: see `EngineSettings`.
        url: address of a running server of the same model; None starts one.
        server_arguments: arguments for SGLang's server, such as `mem_fraction_static`.
    """

    capabilities = EngineCapabilities(
        samples_top_p=True,
        reports_top_logprobs=True,
        packages={"httpx2": extras.NO_HTTP_CLIENT},
    )

    def __init__(
        self, settings: EngineSettings, *, url: str | None = None, **server_arguments: Any
    ) -> None:
        super().__init__(settings)
        self._path, self._url, self._arguments = settings.model_folder, url, server_arguments
        self._server: SGLangServer | None = None
        self._client: SGLangClient | None = None
        self._invalid: str | None = None
        """Why the server's weights cannot be used; None if they are valid."""
        self._accepts_requests = asyncio.Event()

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        super().check(rollout)
        url = rollout.engine_kwargs.get("url")
        if url is None:
            return
        if not (isinstance(url, str) and url.startswith(("http://", "https://"))):
            raise ConfigError(f"rollout.engine_kwargs.url must be http://HOST:PORT, got {url!r}")
        if others := sorted(rollout.engine_kwargs.keys() - {"url"}):
            raise ConfigError(
                f"rollout.engine_kwargs.{others[0]} cannot be set on a server that is already "
                "running; remove it, or remove url"
            )
        if rollout.actors not in (1, "auto"):
            raise ConfigError(
                f"rollout.actors={rollout.actors} actors cannot share one SGLang server; set "
                "rollout.actors=1, or remove rollout.engine_kwargs.url so that each actor starts "
                "its own"
            )

    @classmethod
    def known_kwargs(cls) -> list[str] | None:
        found = class_in_source("sglang", "srt/server_args.py", "ServerArgs")
        if found is None:
            return None
        texts = [node.value for node in ast.walk(found) if isinstance(node, ast.Constant)]
        # Some arguments have additional flags, such as --tensor-parallel-size for tp_size.
        flags = [text for text in texts if isinstance(text, str) and text.startswith("--")]
        named = [flag.removeprefix("--").replace("-", "_") for flag in flags]
        return cls.with_named_kwargs([*field_names(found), *named])

    @classmethod
    def missing_packages(cls, rollout: RolloutConfig) -> list[str]:
        """See `Engine.missing_packages`; with a running server, SGLang is not needed here."""
        started_here = {} if "url" in rollout.engine_kwargs else {"sglang": extras.NO_SGLANG}
        return extras.missing({**cls.capabilities.packages, **started_here})

    @classmethod
    def num_workers(cls, engine_kwargs: Mapping[str, Any]) -> int:
        return parallel_size(engine_kwargs, "tp_size") * parallel_size(engine_kwargs, "pp_size")

    @classmethod
    def num_gpus(cls, engine_kwargs: Mapping[str, Any]) -> int:
        return 0 if engine_kwargs.get("url") is not None else cls.num_workers(engine_kwargs)

    async def start(self) -> None:
        """Start or connect to the server, and generate a first reply."""
        self._encoder = self.settings.open_encoder()
        if self._url is None:
            with tempfile.TemporaryDirectory(prefix="agentrl-sglang-") as scratch:
                folder = await asyncio.to_thread(self._hub_folder, self._path, Path(scratch))
                arguments = {
                    "dtype": self.settings.dtype,
                    "context_length": self.settings.max_context,
                    "random_seed": self.settings.seed,
                    # The request below warms it up.
                    "skip_server_warmup": True,
                }
                self._server = SGLangServer(folder, arguments | self._arguments)
                self._client = SGLangClient(self._server.url, self.settings.concurrency)
                await self._server.wait(self._client, self.settings.start_deadline_s)
            self._accepts_requests.set()
        else:
            self._client = SGLangClient(self._url, self.settings.concurrency)
            await self._client.check_reachable()
            # A running server may still hold the weights of another job.
            await self.load_weights(self._path, self.settings.version)
        await self.generate(Prompt(token_ids=self._encoder.opening()), Sampling(max_new_tokens=2))

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply."""
        if self._client is None:
            raise EngineError("the SGLang engine has not been started or was closed")
        body = await asyncio.to_thread(self._request, prompt, sampling)
        with boundary(EngineError, f"SGLang, prompt of {len(prompt.token_ids)} tokens"):
            async with asyncio.timeout(self.settings.deadline_s):
                await self._accepts_requests.wait()
                if self._invalid is not None:
                    raise EngineError(f"{self._invalid}; load weights before the next request")
                answer = await self._client.post("/generate", body)
            return self._reply(prompt, answer, sampling.top_logprobs)

    def _request(self, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        adapter = self._encoder.model_adapter
        body: dict[str, Any] = {
            "input_ids": adapter.engine_prompt(prompt.token_ids, prompt.images),
            "sampling_params": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_new_tokens": sampling.max_new_tokens,
                "sampling_seed": sampling.seed % 2**63,
                "stop_token_ids": [*self._encoder.eos_token_ids, *sampling.stop_token_ids],
                "logit_bias": {str(token): _NEVER for token in adapter.banned_token_ids},
                "skip_special_tokens": False,
            },
            "return_logprob": True,
            "top_logprobs_num": sampling.top_logprobs,
            "return_prompt_token_ids": True,
        }
        if prompt.images:
            body["image_data"] = [data_url(image) for image in prompt.images]
        return body

    def _reply(self, prompt: Prompt, answer: Any, num_top: int) -> Reply:
        try:
            seen, sampled = answer["prompt_token_ids"], answer["output_ids"]
            rows = answer["meta_info"]["output_token_logprobs"]
            top = answer["meta_info"]["output_top_logprobs"] if num_top else ()
            version = str(answer["meta_info"]["weight_version"])
        except (KeyError, TypeError) as error:
            raise EngineError(
                f"the server's answer has no field {error}; agentrl needs SGLang 0.5.9 or newer"
            ) from None
        if tuple(seen) != prompt.token_ids:
            raise EngineError(
                f"SGLang expanded the prompt to {len(seen)} tokens, which differ from agentrl's "
                f"{len(prompt.token_ids)}; SGLang's image processor and agentrl's adapter of the "
                "model disagree"
            )
        if [row[1] for row in rows] != list(sampled):
            raise EngineError("SGLang's log-probabilities do not belong to the tokens of its reply")
        return Reply(
            token_ids=tuple(sampled),
            logprobs=tuple(float(row[0]) for row in rows),
            # Until its first weight update, a server reports a name that is not a number.
            version=int(version) if version.isdigit() else self.settings.version,
            top_logprobs=tuple(
                most_probable(((row[1], float(row[0])) for row in position), num_top)
                for position in top
            ),
        )

    async def load_weights(self, path: Path, version: int) -> None:
        """Load a safetensors file once no request is running, and drop all caches.

        Raises:
            EngineError: the server rejected the weights, or did not answer in time. Because some of
                the new weights may have arrived, the engine refuses requests until a load succeeds.
        """
        if self._client is None:
            raise EngineError("the SGLang engine has not been started or was closed")
        self._accepts_requests.clear()
        self._invalid = f"the weights of version {version} ({path}) were not loaded"
        try:
            with boundary(EngineError, f"SGLang: loading weights from {path}"):
                async with asyncio.timeout(self.settings.deadline_s):
                    with tempfile.TemporaryDirectory(prefix="agentrl-sglang-") as scratch:
                        folder = await asyncio.to_thread(self._hub_folder, path, Path(scratch))
                        # The server lets running requests finish first.
                        body = {
                            "model_path": str(folder),
                            "weight_version": str(version),
                            "flush_cache": True,
                        }
                        await self._client.post("/update_weights_from_disk", body)
            self._invalid = None
        finally:
            self._accepts_requests.set()

    def _hub_folder(self, weights: Path, scratch: Path) -> Path:
        """Write a folder with these weights in the layout that SGLang reads."""
        if weights.is_file():
            # SGLang accepts an incomplete file and silently keeps the old values of missing
            # weights.
            check_header(self._meta_model, weights)
        return _write_hub_folder(self._meta_model, self._path, weights, scratch)

    @cached_property
    def _meta_model(self) -> nn.Module:
        return load_on_meta(self._path)

    @property
    def is_alive(self) -> bool:
        return self._server is None or self._server.is_alive

    async def close(self) -> None:
        """Disconnect, and end the server if this engine started it. Idempotent."""
        client, self._client = self._client, None
        server, self._server = self._server, None
        if client is not None:
            await client.close()
        if server is not None:
            await asyncio.to_thread(server.close)


def _write_hub_folder(model: nn.Module, source: Path, weights: Path, folder: Path) -> Path:
    """Write a copy of a model's folder with new weights, under the names that SGLang expects.

    Transformers renames the weights of some models when it loads them (`visual` becomes
    `model.visual` in Qwen2.5-VL). SGLang knows only the names on the hub and silently skips others.

    Args:
        model: the model; may be on the meta device.
        source: the model's folder; its other files are linked.
        weights: a safetensors file, or a folder of safetensors files.
        folder: an empty folder to write to.

    Returns:
        `folder`, or `weights` if that is a folder that SGLang can read unchanged.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    files = sorted(weights.glob("*.safetensors")) if weights.is_dir() else [weights]
    names: dict[Path, list[str]] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            names[file] = list(opened.keys())
    known = _hub_names(model, [name for found in names.values() for name in found])
    is_renamed = any(name != new for name, new in known.items())
    if weights.is_dir() and not is_renamed:
        return weights
    for other in source.iterdir():
        if other.is_file() and not other.name.endswith(_WEIGHTS):
            (folder / other.name).symlink_to(other.absolute())
    for number, file in enumerate(files, 1):
        part = "" if len(files) == 1 else f"-{number:05d}-of-{len(files):05d}"
        target = folder / f"model{part}.safetensors"
        tensors = load_file(file)
        check_digest(file, tensors)
        if is_renamed:
            renamed = {known[name]: tensor for name, tensor in tensors.items()}
            save_file(renamed, target, metadata={"format": "pt"})
        else:
            target.symlink_to(file.absolute())
    return folder


def _hub_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Map the names of weights in transformers to their names on the hub."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    found = {}
    for name in names:
        # Only renaming is supported, as a weight that is joined or split has no single counterpart.
        one = torch.empty(1, 1, device="meta")
        reverted = revert_weight_conversion(model, {name: one})
        if len(reverted) != 1:
            raise EngineError(
                f"{name}: SGLang uses a different weight layout for {type(model).__name__} than "
                "transformers; use rollout.engine=vllm"
            )
        (found[name],) = reverted
    return found

"""An engine that runs vLLM, on CPUs and GPUs.

vLLM runs in separate processes, which end when this process ends.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import itertools
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import accelerators, extras
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError, boundary
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
from agentrl.policies.engines.vllm_env_vars import (
    LORA_RANKS,
    ONE_PROCESS,
    main_guard_hint,
    vllm_environment,
)
from agentrl.policies.engines.weight_checks import check_header, check_shapes
from agentrl.policies.models import load_on_meta
from agentrl.types import Prompt, Reply, TopLogprobs

if TYPE_CHECKING:
    from torch import nn

    from agentrl.policies.models import ModelAdapter

# Arguments that turn on speculative decoding.
_SPECULATIVE = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
# vLLM's own default.
_MAX_MEMORY_SHARE = 0.92
# Share of a GPU's memory left free for allocations that vLLM does not count, which take 2.4 GB for
# a 3B model on an H100 with 80 GB.
_RESERVE = 0.05


class VLLMEngine(TokenEngine):
    """Generates with vLLM's AsyncLLM.

    Args:
        settings: see `EngineSettings`. `seed` seeds the engine's random stream, which CPUs use for
            all prompts; `can_sleep` works only on GPUs.
        engine_kwargs: arguments for vLLM's `AsyncEngineArgs`.
    """

    capabilities = EngineCapabilities(
        sleeps=True,
        max_lora_rank=LORA_RANKS[-1],
        max_temperature=2.0,
        samples_top_p=True,
        reports_top_logprobs=True,
        packages={"vllm": extras.NO_VLLM},
        tiny_turns_per_s=55.0,
    )

    def __init__(self, settings: EngineSettings, **engine_kwargs: Any) -> None:
        super().__init__(settings)
        self._path = settings.model_folder
        self._deadline_s = settings.deadline_s
        self._arguments: dict[str, Any] = {
            "model": str(self._path),
            "dtype": settings.dtype,
            "max_model_len": settings.max_context,
            "max_num_seqs": 256,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "worker_extension_cls": "agentrl.policies.engines.vllm_worker_extension.WeightLoader",
            "disable_log_stats": True,
            "generation_config": "vllm",
            "seed": settings.seed,
        }
        if settings.backend is not None:
            self._arguments["weight_transfer_config"] = {"backend": settings.backend}
        if settings.lora_rank:
            self._arguments |= {
                "enable_lora": True,
                "max_loras": 1,
                # vLLM accepts only certain ranks, so round up to the next.
                "max_lora_rank": min(rank for rank in LORA_RANKS if rank >= settings.lora_rank),
            }
        if settings.can_sleep:
            self._arguments["enable_sleep_mode"] = True
        self._arguments |= engine_kwargs
        # With adapters, base weights are never sent again, so they must survive sleeping.
        self._sleep_level = 1 if settings.lora_rank else 2
        self._is_asleep = False
        self._is_paused = False
        self._adapter: Any = None
        self._engine: Any = None
        self._version = settings.version
        self._invalid: str | None = None
        """Why the engine's weights cannot be used; None if they match `_version`."""
        self._ids = itertools.count()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._accepts_requests = asyncio.Event()

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        """See `Engine.check`; vLLM itself rejects these settings only at the first request."""
        super().check(rollout)
        for name in _SPECULATIVE:
            if rollout.engine_kwargs.get(name) is not None:
                raise ConfigError(
                    f"rollout.engine_kwargs.{name} is not supported; vLLM cannot ban tokens during "
                    "speculative decoding, and image tokens must never be sampled. Remove it"
                )

    @classmethod
    def why_not_train(cls, folder: Path, family: type[ModelAdapter], gpus: int) -> str | None:
        if not family.runs_in_vllm:
            return "vLLM does not support models of this family"
        if not gpus and family.attends_within_images:
            return "without a GPU, vLLM's attention is causal within images, unlike this model's"
        return None

    @classmethod
    def known_kwargs(cls) -> list[str] | None:
        found: list[str] = []
        for name, bases in (("EngineArgs", []), ("AsyncEngineArgs", ["EngineArgs"])):
            node = class_in_source("vllm", "engine/arg_utils.py", name)
            # With different bases, fields may be defined elsewhere, so leave the check to vLLM.
            if node is None or [ast.unparse(base) for base in node.bases] != bases:
                return None
            found += field_names(node)
        return cls.with_named_kwargs(found)

    @classmethod
    def num_workers(cls, engine_kwargs: Mapping[str, Any]) -> int:
        kinds = ("tensor", "pipeline", "data")
        return math.prod(parallel_size(engine_kwargs, f"{kind}_parallel_size") for kind in kinds)

    @classmethod
    def memory_share(cls, engine_kwargs: Mapping[str, Any], free: float) -> float:
        """See `Engine.memory_share`; rounded down to hundredths, minus a reserve."""
        most = math.floor(max(0.0, free - _RESERVE) * 100) / 100
        return float(engine_kwargs.get("gpu_memory_utilization", min(_MAX_MEMORY_SHARE, most)))

    async def start(self) -> None:
        """Start the engine and generate a first reply."""
        self._encoder = self.settings.open_encoder()
        if self.settings.backend == "ipc":
            # vLLM's process accepts pickled handles of GPU memory only with this setting. It then
            # annotates its results with their types, which this process can read only with the same
            # setting, so the variable must stay set.
            os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        # Start in this thread, because Linux treats the end of the starting thread as the parent's
        # death.
        with vllm_environment(self.settings.start_deadline_s):
            engine_class, arguments = self._configure()
            with boundary(EngineError, f"vLLM did not start with {self._path}{main_guard_hint()}"):
                self._engine = engine_class.from_engine_args(arguments)
        self._accepts_requests.set()
        self._idle.set()
        await self._engine.update_weight_version(str(self._version))
        warm_up = Prompt(token_ids=self._encoder.opening())
        await self.generate(warm_up, Sampling(max_new_tokens=2))

    def _configure(self) -> tuple[Any, Any]:
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise ConfigError(f"{extras.NO_VLLM} ({error})") from error
        defaults: dict[str, Any] = {"use_tqdm_on_load": False}
        defaults |= self._encoder.model_adapter.engine_arguments()
        if not accelerators.count():
            defaults |= {"enforce_eager": True, "skip_mm_profiling": True}
            if self.num_workers(self._arguments) == 1:
                defaults["distributed_executor_backend"] = ONE_PROCESS
        else:
            # A learner may already be using part of the memory.
            free = accelerators.free_share()
            defaults["gpu_memory_utilization"] = self.memory_share(self._arguments, free)
            if self.num_workers(self._arguments) > 1:
                # In a Ray actor, vLLM would start its workers through Ray and wait for GPUs that
                # the actor itself has reserved.
                defaults["distributed_executor_backend"] = "mp"
        try:
            return AsyncLLM, AsyncEngineArgs(**(defaults | self._arguments))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"vLLM rejects rollout.engine_kwargs: {error}") from error

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply."""
        return await self._generate(prompt, sampling)

    async def stream(
        self, prompt: Prompt, sampling: Sampling, show: Callable[[tuple[int, ...]], None]
    ) -> Reply:
        return await self._generate(prompt, sampling, show)

    async def _generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        show: Callable[[tuple[int, ...]], None] | None = None,
    ) -> Reply:
        what = f"vLLM, prompt of {len(prompt.token_ids)} tokens"
        with boundary(EngineError, what):
            async with asyncio.timeout(self._deadline_s), self._request_in_flight():
                output = await self._run(prompt, sampling, show)
        if tuple(output.prompt_token_ids) != prompt.token_ids:
            raise EngineError(
                f"vLLM expanded the prompt to {len(output.prompt_token_ids)} tokens, which differ "
                f"from agentrl's {len(prompt.token_ids)}; vLLM's image processor and agentrl's "
                "adapter of the model disagree"
            )
        sampled = output.outputs[0]
        logprobs = tuple(
            float(position[token].logprob)
            for position, token in zip(sampled.logprobs, sampled.token_ids, strict=True)
        )
        versions = tuple(
            int(span.version)
            for span in sampled.weight_versions
            for _ in range(span.start, span.end)
        )
        return Reply(
            token_ids=tuple(sampled.token_ids),
            logprobs=logprobs,
            version=versions[0],
            versions=versions if versions[0] != versions[-1] else (),
            top_logprobs=_most_probable(sampled.logprobs, sampling.top_logprobs),
        )

    async def _run(
        self, prompt: Prompt, sampling: Sampling, show: Callable[[tuple[int, ...]], None] | None
    ) -> Any:
        request = self._request(prompt)
        parameters = self._parameters(sampling, grows=show is not None)
        answers = self._engine.generate(
            request, parameters, f"{next(self._ids)}", lora_request=self._adapter
        )
        output: Any = None
        async for output in answers:
            if show is not None:
                show(tuple(output.outputs[0].token_ids))
        if output is None or not output.finished:
            raise EngineError("vLLM returned no output")
        if output.outputs[0].finish_reason == "abort":
            raise EngineError(f"a weight update failed during this request: {self._invalid}")
        return output

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        collapsed = self._encoder.model_adapter.engine_prompt(prompt.token_ids, prompt.images)
        request: dict[str, Any] = {"prompt_token_ids": collapsed}
        if prompt.images:
            request["multi_modal_data"] = {"image": list(prompt.images)}
        return request

    def _parameters(self, sampling: Sampling, *, grows: bool) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # On CPUs, vLLM 0.32 crashes when it prefills a seeded prompt in two chunks ("CPU Generator
        # does not use offset"), so CPUs sample from the engine's own stream.
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_new_tokens,
            seed=sampling.seed % 2**63 if accelerators.count() else None,
            logprobs=sampling.top_logprobs,
            logit_bias=dict.fromkeys(self._encoder.model_adapter.banned_token_ids, -math.inf),
            stop_token_ids=[*self._encoder.eos_token_ids, *sampling.stop_token_ids],
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE if grows else RequestOutputKind.FINAL_ONLY,
        )

    @contextlib.asynccontextmanager
    async def _request_in_flight(self) -> AsyncIterator[None]:
        """Count a request as in flight, after any weight update has finished."""
        if self._engine is None:
            raise EngineError("the vLLM engine has not been started or was closed")
        await self._accepts_requests.wait()
        if self._invalid is not None:
            raise EngineError(f"vLLM: {self._invalid}; load weights before the next request")
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def load_weights(self, path: Path, version: int) -> None:
        """Load a safetensors file and drop all caches.

        Requests in flight continue with the new weights, after vLLM recomputes the cache of their
        tokens so far; replies report the weight version of each token.

        Raises:
            EngineError: the engine rejected the weights, or did not answer in time. Because some of
                the new weights may have arrived, requests in flight fail, and new requests are
                refused until a load succeeds.
        """
        async with self._update(version, f"weights of {path}", str(path)):
            # vLLM accepts an incomplete file and silently keeps the old values of missing weights.
            check_header(self._meta_model, path)
            await self._pause()
            await self._engine.collective_rpc("load_safetensors", args=(str(path),))

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Replace the LoRA adapters, in PEFT's format, and drop all caches.

        Requests in flight continue with the new adapters, as in `load_weights`.
        """
        from vllm.lora.request import LoRARequest

        async with self._update(version, f"adapters of {folder}", str(folder)):
            # Wait for requests in flight, which would otherwise continue with adapters midway.
            if self._adapter is None:
                await self._idle.wait()
            await self._pause()
            file = folder / "adapter_model.safetensors"
            await self._engine.collective_rpc("check_safetensors", args=(str(file),))
            named = {"lora_name": f"version-{version}", "lora_int_id": 1, "lora_path": str(folder)}
            if not await self._engine.add_lora(LoRARequest(**named, load_inplace=True)):
                raise EngineError("vLLM rejected the adapters")
            self._adapter = LoRARequest(**named)

    async def begin_weight_update(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Prepare to receive weights through `call_weight_transfer` until `finish_weight_update`.

        Args:
            version: version of the weights.
            shapes: shapes of all tensors that will arrive, by Hugging Face name.
            checked: see `WeightLoader.start_recording_weights`.
        """
        self._accepts_requests.clear()
        self._invalid = f"the weights of version {version} have not arrived"
        try:
            with boundary(EngineError, f"vLLM: receiving weights of version {version}"):
                check_shapes(self._meta_model, shapes, f"version {version}")
                async with asyncio.timeout(self._deadline_s):
                    await self._pause()
                    await self._engine.collective_rpc("start_recording_weights", args=(checked,))
        except BaseException:
            await self._abort_requests()
            self._accepts_requests.set()
            raise

    async def call_weight_transfer(self, method: str, *arguments: Any) -> None:
        """Call a method of vLLM's weight-transfer API, such as `update_weights`."""
        from vllm.distributed.weight_transfer import base

        kinds: dict[str, Any] = {
            "init_weight_transfer_engine": base.WeightTransferInitRequest,
            "update_weights": base.WeightTransferUpdateRequest,
        }
        if method in kinds:
            arguments = tuple(kinds[method](argument) for argument in arguments)
        with boundary(EngineError, f"vLLM: {method}"):
            async with asyncio.timeout(self._deadline_s):
                await getattr(self._engine, method)(*arguments)

    async def finish_weight_update(
        self, version: int, names: Sequence[str], digest: str | None
    ) -> None:
        """Switch to the weights that have arrived and drop all caches of the old weights.

        Args:
            version: as in `begin_weight_update`.
            names: names of all tensors that were sent.
            digest: checksum of the sent tensors; None skips the comparison.

        Raises:
            EngineError: the weights that arrived differ from the weights that were sent. The engine
                refuses requests from now on.
        """
        async with self._update(version, f"weights of version {version}", "sent by the learner"):
            await self._engine.collective_rpc("verify_recorded_weights", args=(list(names), digest))

    @contextlib.asynccontextmanager
    async def _update(self, version: int, what: str, source: str) -> AsyncIterator[None]:
        """Hold back requests during a weight update, then drop all caches of the old weights."""
        self._accepts_requests.clear()
        self._invalid = f"the weights of version {version} ({source}) were not loaded"
        try:
            with boundary(EngineError, f"vLLM: {what}"):
                async with asyncio.timeout(self._deadline_s):
                    yield
                    if self._is_asleep:
                        await self._engine.wake_up(["kv_cache"])
                        self._is_asleep = False
                    # Reset the cache of requests in flight too. Keep vLLM's cache of processed
                    # images, because it does not depend on weights, and requests on their way to
                    # the engine may refer to it.
                    await self._engine.reset_prefix_cache(reset_running_requests=True)
                    await self._engine.reset_encoder_cache()
                    await self._engine.update_weight_version(str(version))
                    await self._engine.resume_generation()
            self._is_paused, self._version, self._invalid = False, version, None
        except BaseException:
            await self._abort_requests()
            raise
        finally:
            self._accepts_requests.set()

    async def _pause(self) -> None:
        """Pause for a weight update; requests in flight stay in vLLM's queue."""
        if self._is_asleep:
            await self._engine.wake_up(["weights"])
        else:
            self._is_paused = True
            await self._engine.pause_generation(mode="keep", clear_cache=False)

    async def _abort_requests(self) -> None:
        """Abort paused requests after a failed update, or they would resume with its weights."""
        if self._is_paused:
            # Ignore errors here, because the error of the update itself is more informative.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._deadline_s):
                    await self._engine.pause_generation(mode="abort", clear_cache=False)
                    await self._engine.resume_generation()
            self._is_paused = False

    async def sleep(self) -> None:
        """Release GPU memory, and refuse requests, until weights are loaded."""
        self._accepts_requests.clear()
        self._invalid = "the engine is asleep"
        try:
            with boundary(EngineError, "vLLM: going to sleep"):
                async with asyncio.timeout(self._deadline_s):
                    await self._idle.wait()
                    await self._engine.sleep(self._sleep_level)
            self._is_asleep = True
        finally:
            self._accepts_requests.set()

    @cached_property
    def _meta_model(self) -> nn.Module:
        return load_on_meta(self._path)

    @property
    def is_alive(self) -> bool:
        return self._engine is not None and not self._engine.errored

    async def close(self) -> None:
        """End the engine's processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown(timeout=1)


def _most_probable(positions: Any, count: int) -> tuple[TopLogprobs, ...]:
    """Return the most probable tokens; vLLM also lists the sampled token regardless of its rank."""
    if not count:
        return ()
    return tuple(
        most_probable(((token, float(found.logprob)) for token, found in position.items()), count)
        for position in positions
    )

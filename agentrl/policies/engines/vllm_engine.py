"""vLLM as an engine, on CPUs and GPUs.

The engine lives in processes of its own, which die with this one.
"""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agentrl import extras
from agentrl.errors import ConfigError, EngineError, boundary
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.engines.vllm_arguments import LORA_RANKS
from agentrl.policies.engines.weight_shapes import check_fit, check_shapes
from agentrl.policies.models import skeleton, torch_companions
from agentrl.types import Prompt, Reply

_PROCESSES = Path(__file__).resolve().parent / "vllm_processes"
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""On CPUs, vLLM puts scheduler and model in two processes, and each spins while it waits for the
other: on two cores that is half the time. By its name it takes "uni" for "mp", by its path not."""


class VLLMEngine:
    """Answers with vLLM's AsyncLLM.

    Args:
        path: the model's folder.
        dtype: `float32` or `bfloat16`.
        max_context: tokens of prompt and reply.
        max_num_seqs: prompts answered at once.
        deadline_s: for one answer, and for new weights.
        start_deadline_s: for the engine to come up.
        seed: of the engine's own stream of draws, which CPUs use for all prompts.
        transfer: how weights come: as a `file`, or by which of vLLM's weight-transfer engines.
        lora_rank: of the adapters that `load_adapter` brings; 0 for none.
        can_sleep: whether `sleep` will be called; GPUs alone can.
        engine_kwargs: further arguments of vLLM's `AsyncEngineArgs`.
        version: of the weights in the folder; replies say so.
    """

    def __init__(
        self,
        path: Path,
        *,
        dtype: str = "float32",
        max_context: int = 4096,
        max_num_seqs: int = 256,
        deadline_s: float = 600.0,
        start_deadline_s: float = 600.0,
        seed: int = 0,
        transfer: str = "file",
        lora_rank: int = 0,
        can_sleep: bool = False,
        engine_kwargs: Mapping[str, Any] | None = None,
        version: int = 0,
    ) -> None:
        self._path = path
        self._deadline_s, self._start_deadline_s = deadline_s, start_deadline_s
        self._arguments: dict[str, Any] = {
            "model": str(path),
            "dtype": dtype,
            "max_model_len": max_context,
            "max_num_seqs": max_num_seqs,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "worker_extension_cls": "agentrl.policies.engines.vllm_worker.WeightLoader",
            "disable_log_stats": True,
            "generation_config": "vllm",
            "seed": seed,
        }
        # Handles of memory on a GPU come pickled, which vLLM takes in no other case.
        self._serialization = (
            {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if transfer == "ipc" else {}
        )
        if transfer != "file":
            self._arguments["weight_transfer_config"] = {"backend": transfer}
        if lora_rank:
            self._arguments |= {
                "enable_lora": True, "max_loras": 1, "max_lora_rank": _rank_taken(lora_rank),
            }  # fmt: skip
        if can_sleep:
            self._arguments["enable_sleep_mode"] = True
        self._arguments |= dict(engine_kwargs or {})
        # With adapters the weights below them are not sent again: they have to outlive a sleep.
        self._depth = 1 if lora_rank else 2
        self._sleeps = False
        self._adapter: Any = None
        self._engine: Any = None
        self._version = version
        self._doubt: str | None = None
        """Why nobody knows which weights it has; None where `_version` says so."""
        self._ids = itertools.count()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._open = asyncio.Event()

    async def start(self) -> None:
        """Bring the engine up and answer a first prompt.

        Raises:
            ConfigError: vLLM is not installed, or does not take its arguments.
            EngineError: it did not come up.
        """
        self._encoder = ChatEncoder(self._path)
        torch_companions.mend()
        # In this very thread: Linux counts a thread that ends as the death of the parent.
        with _environment(self._start_deadline_s, self._serialization):
            engine_class, arguments = self._configure()
            with boundary(EngineError, f"vLLM did not start with {self._path}{_hint()}"):
                self._engine = engine_class.from_engine_args(arguments)
        self._open.set()
        self._idle.set()
        warm_up = Prompt(token_ids=self._encoder.opening())
        await self.generate(warm_up, Sampling(max_new_tokens=2))

    def _configure(self) -> tuple[Any, Any]:
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise ConfigError(f"{extras.NO_VLLM} ({error})") from error
        defaults: dict[str, Any] = {}
        if self._encoder.kit.image_token_id is not None:
            # Pictures come at the size that they were counted with.
            defaults["mm_processor_kwargs"] = {"do_resize": False}
            defaults["limit_mm_per_prompt"] = {"video": 0}
        if not torch.cuda.is_available():
            defaults |= {"enforce_eager": True, "skip_mm_profiling": True}
            if self._arguments.get("tensor_parallel_size", 1) == 1:
                defaults["distributed_executor_backend"] = _ONE_PROCESS
        try:
            return AsyncLLM, AsyncEngineArgs(**(defaults | self._arguments))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"rollout.engine_kwargs: vLLM does not take them: {error}") from error

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply.

        Raises:
            EngineError: the engine failed, was silent, or saw other tokens than the prompt's.
        """
        what = f"vLLM: a prompt of {len(prompt.token_ids)} tokens"
        with boundary(EngineError, what):
            async with asyncio.timeout(self._deadline_s), self._answering():
                version = self._version
                output = await self._run(prompt, sampling)
        if tuple(output.prompt_token_ids) != prompt.token_ids:
            raise EngineError(
                f"vLLM saw other tokens ({len(output.prompt_token_ids)}) than the prompt's "
                f"({len(prompt.token_ids)}): its image processor disagrees with the kit"
            )
        drawn = output.outputs[0]
        logprobs = tuple(
            float(position[token].logprob)
            for position, token in zip(drawn.logprobs, drawn.token_ids, strict=True)
        )
        return Reply(token_ids=tuple(drawn.token_ids), logprobs=logprobs, version=version)

    async def _run(self, prompt: Prompt, sampling: Sampling) -> Any:
        request = self._request(prompt)
        parameters = self._parameters(sampling)
        answers = self._engine.generate(
            request, parameters, f"{next(self._ids)}", lora_request=self._adapter
        )
        output = [answer async for answer in answers][-1]
        if not output.finished:
            raise EngineError("vLLM gave no answer")
        return output

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        collapsed = self._encoder.kit.collapse(prompt.token_ids, prompt.images)
        request: dict[str, Any] = {"prompt_token_ids": collapsed}
        if prompt.images:
            request["multi_modal_data"] = {"image": list(prompt.images)}
        return request

    def _parameters(self, sampling: Sampling) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # On CPUs vLLM 0.32 dies where a prompt with a seed is read in two parts ("CPU Generator
        # does not use offset"): there all draws come from the engine's own stream.
        return SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_new_tokens,
            seed=sampling.seed % 2**63 if torch.cuda.is_available() else None,
            logprobs=0,
            logit_bias=dict.fromkeys(self._encoder.kit.banned_token_ids, -torch.inf),
            stop_token_ids=list(self._encoder.eos_token_ids),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Count a request as in flight; waits while weights are loaded."""
        if self._engine is None:
            raise EngineError("the vLLM engine is not started, or closed")
        await self._open.wait()
        if self._doubt is not None:
            raise EngineError(f"vLLM: {self._doubt}; it answers again when weights are loaded")
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    def enter(self) -> None:
        """Nothing: vLLM takes prompts as they come."""

    def leave(self) -> None:
        """Nothing."""

    async def load_weights(self, path: Path, version: int) -> None:
        """Take the weights of a safetensors file between two answers, and forget all caches.

        Raises:
            EngineError: the engine refused them, or did not come to rest in time. It answers
                nothing until weights are loaded: some of the new ones may have arrived.
        """
        async with self._changing(version, f"weights of {path}", str(path)):
            # vLLM takes a file that lacks some, and keeps what it had of those.
            check_fit(self._skeleton, path)
            await self._idle.wait()
            await self._wake("weights")
            await self._engine.collective_rpc("load_safetensors", args=(str(path),))

    async def load_adapter(self, folder: Path, version: int) -> None:
        """Answer with other adapters (as PEFT writes them) from now on; see `load_weights`.

        Raises:
            EngineError: as `load_weights`.
        """
        from vllm.lora.request import LoRARequest

        async with self._changing(version, f"adapters of {folder}", str(folder)):
            await self._idle.wait()
            await self._wake("weights")
            file = folder / "adapter_model.safetensors"
            await self._engine.collective_rpc("check_safetensors", args=(str(file),))
            named = {"lora_name": f"version-{version}", "lora_int_id": 1, "lora_path": str(folder)}
            if not await self._engine.add_lora(LoRARequest(**named, load_inplace=True)):
                raise EngineError("vLLM did not take them")
            self._adapter = LoRARequest(**named)

    async def receive(
        self, version: int, shapes: Mapping[str, Sequence[int]], checked: bool
    ) -> None:
        """Come to rest, and wait for weights by vLLM's weight transfer: `call`, then `received`.

        Args:
            version: theirs.
            shapes: of all that will come, by their Hugging Face names.
            checked: see `WeightLoader.watch_weights`.

        Raises:
            EngineError: as `load_weights`.
        """
        self._open.clear()
        self._doubt = f"the weights of version {version} have not come"
        try:
            with boundary(EngineError, f"vLLM: weights of version {version}"):
                check_shapes(self._skeleton, shapes, f"version {version}")
                async with asyncio.timeout(self._deadline_s):
                    await self._idle.wait()
                    await self._wake("weights")
                    await self._engine.collective_rpc("watch_weights", args=(checked,))
        except BaseException:
            self._open.set()
            raise

    async def call(self, method: str, *arguments: Any) -> None:
        """One call of vLLM's weight-transfer API, such as `update_weights`.

        Raises:
            EngineError: it failed, or was silent.
        """
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

    async def received(self, version: int, names: Sequence[str], digest: str | None) -> None:
        """Answer with what has come since `receive`; every cache of the old weights is forgotten.

        Args:
            version: as in `receive`.
            names: of all that was sent.
            digest: of what was sent; None compares nothing.

        Raises:
            EngineError: something else has come. The engine answers nothing from now on.
        """
        async with self._changing(version, f"weights of version {version}", "sent by the learner"):
            await self._engine.collective_rpc("finish_watching", args=(list(names), digest))

    @contextlib.asynccontextmanager
    async def _changing(self, version: int, what: str, source: str) -> AsyncIterator[None]:
        """Answer nothing while weights change; they are known and nothing is cached afterwards."""
        self._open.clear()
        self._doubt = f"the weights of version {version} ({source}) were not loaded"
        try:
            with boundary(EngineError, f"vLLM: {what}"):
                async with asyncio.timeout(self._deadline_s):
                    yield
                    await self._wake("kv_cache")
                    self._sleeps = False
                    await self._forget()
            self._version, self._doubt = version, None
        finally:
            self._open.set()

    async def sleep(self) -> None:
        """Leave the GPU's memory to others until weights come; answers nothing until then.

        Raises:
            EngineError: it did not come to rest in time.
        """
        self._open.clear()
        self._doubt = "it sleeps"
        try:
            with boundary(EngineError, "vLLM: to sleep"):
                async with asyncio.timeout(self._deadline_s):
                    await self._idle.wait()
                    await self._engine.sleep(self._depth)
            self._sleeps = True
        finally:
            self._open.set()

    async def _wake(self, part: str) -> None:
        if self._sleeps:
            await self._engine.wake_up([part])

    @cached_property
    def _skeleton(self) -> nn.Module:
        return skeleton(self._path)

    async def _forget(self) -> None:
        """Drop everything computed with the old weights."""
        if not await self._engine.reset_prefix_cache():
            raise EngineError("vLLM kept its prefix cache")
        await self._engine.reset_mm_cache()
        # Without this one, the next request with a known picture kills the engine.
        await self._engine.reset_encoder_cache()

    async def close(self) -> None:
        """End the engine's processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown(timeout=1)


def _rank_taken(rank: int) -> int:
    """The least that vLLM has room for."""
    return min(most for most in LORA_RANKS if most >= rank)


def _hint() -> str:
    """The mistake that is made most in a script: vLLM's processes run its top level again."""
    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    if script.suffix != ".py" or script.name == "default_worker.py":  # of a Ray actor
        return ""
    return f" (does {script.name} call agentrl only below `if __name__ == '__main__':`?)"


@contextlib.contextmanager
def _environment(start_deadline_s: float, more: Mapping[str, str]) -> Iterator[None]:
    """What vLLM and its processes read from the environment, where the user has not set it."""
    folders = [str(_PROCESSES), *filter(None, [os.environ.get("PYTHONPATH")])]
    always = {
        "AGENTRL_VLLM_PROCESS": "1",
        "AGENTRL_WITHOUT": ",".join(torch_companions.left_out()),
        "PYTHONPATH": os.pathsep.join(folders),
    }
    settings = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(start_deadline_s)),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    if not torch.cuda.is_available():
        settings |= {"VLLM_CPU_KVCACHE_SPACE": "1", "KMP_BLOCKTIME": "1"}
        # vLLM compiles two small functions of its sampler, eager or not: seconds for the first
        # answer and for each new size of a batch, and a C++ compiler where there may be none.
        settings |= {"TORCH_COMPILE_DISABLE": "1"}
        # As vLLM advises: its threads then wait without burning the learner's time.
        openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
        settings |= {"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}
    settings |= more
    added = {n: value for n, value in settings.items() if n not in os.environ} | always
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""An engine of your own: transformers without a key-value cache, one prompt at a time.

agentrl train examples/own_environment.yaml rollout.engine=examples/extend/engine.py:PlainEngine
"""

import asyncio

from agentrl.errors import EngineError
from agentrl.policies.engines.engine import EngineCapabilities, TokenEngine
from agentrl.policies.engines.weight_checks import check_digest, check_header
from agentrl.policies.models import load_model
from agentrl.types import Reply


class PlainEngine(TokenEngine):
    capabilities = EngineCapabilities(reproducible=True)

    def __init__(self, settings, *, device="cpu"):  # rollout.engine_kwargs={device: cuda}
        super().__init__(settings)
        self._device, self._version, self._model = device, settings.version, None
        self._lock = asyncio.Lock()

    async def start(self):
        settings = self.settings
        self._encoder = settings.open_encoder()
        self._model = load_model(
            settings.model_folder,
            model_adapter=self._encoder.model_adapter,
            dtype=settings.dtype,
            device=self._device,
        ).eval()

    async def generate(self, prompt, sampling):
        async with self._lock, asyncio.timeout(self.settings.deadline_s):
            if self._model is None:
                raise EngineError("the engine has not been started or was closed")
            return await asyncio.to_thread(self._sample, prompt, sampling)

    def _sample(self, prompt, sampling):
        import torch  # not at the top: configurations are checked without torch

        adapter = self._encoder.model_adapter
        generator = torch.Generator(self._device).manual_seed(sampling.seed % 2**63)
        tokens, logprobs = [], []
        while len(tokens) < sampling.max_new_tokens:
            ids = torch.tensor([[*prompt.token_ids, *tokens]])
            inputs = adapter.forward_inputs(ids, torch.ones_like(ids).bool(), prompt.images)
            with torch.no_grad():
                inputs = {name: value.to(self._device) for name, value in inputs.items()}
                logits = self._model(**inputs).logits[0, -1].float()
            logits[list(adapter.banned_token_ids)] = -torch.inf
            table = torch.log_softmax(logits / (sampling.temperature or 1.0), dim=-1)
            if sampling.temperature == 0:
                token = int(table.argmax())
            else:
                token = int(torch.multinomial(table.exp(), 1, generator=generator))
            tokens.append(token)
            logprobs.append(float(table[token]))
            if token in (*self._encoder.eos_token_ids, *sampling.stop_token_ids):
                break
        return Reply(token_ids=tuple(tokens), logprobs=tuple(logprobs), version=self._version)

    async def load_weights(self, path, version):
        from safetensors.torch import load_file

        async with self._lock:
            check_header(self._model, path)  # raises EngineError for weights of a different model
            self._model.load_state_dict(load_file(path), strict=False)
            check_digest(path, self._model.state_dict())
            self._version = version

    async def close(self):
        self._model = None

"""An HTTP server that answers like SGLang's, from a real model by transformers.

Requests and responses are those of SGLang 0.5.23: `sglang/srt/managers/io_struct.py` and
`sampling/sampling_params.py`, reduced to the fields that agentrl uses. Any other field is refused.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import cv2
import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import safe_open
from transformers import TopPLogitsWarper

from agentrl.policies.models import adapter_for, load_model


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SamplingParams(Strict):
    max_new_tokens: int | None = 128
    # A list in JSON, which SGLang takes as a set.
    stop_token_ids: list[int] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    skip_special_tokens: bool = True
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None


class GenerateReqInput(Strict):
    input_ids: list[int]
    image_data: list[str] | None = None
    sampling_params: SamplingParams
    return_logprob: bool
    top_logprobs_num: int = 0
    return_prompt_token_ids: bool = False


class UpdateWeightFromDiskReqInput(Strict):
    model_path: str
    weight_version: str | None = None
    flush_cache: bool = True


class Twin:
    """What the server does, without HTTP."""

    def __init__(self) -> None:
        self.model: Any = None
        self.version = "default"
        self.asked: list[dict[str, Any]] = []
        self.names: set[str] = set()
        """Names of the weights that were loaded last, as on the hub."""
        self.margins: tuple[list[int], list[int]] = ([], [])
        """Tokens that it adds before and after each image, as for InternVL."""
        self.failure: tuple[int, Any] | None = None
        """The next answer, instead of the right one."""
        self._lock = Lock()

    def update_weights_from_disk(self, asked: UpdateWeightFromDiskReqInput) -> tuple[int, Any]:
        folder = Path(asked.model_path)
        self.names = set()
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="pt") as opened:
                self.names |= set(opened.keys())
        self.adapter, self.model = adapter_for(folder), load_model(folder).eval()
        self.version = asked.weight_version or self.version
        return 200, {"success": True, "message": "Succeeded.", "num_paused_requests": 0}

    def generate(self, asked: GenerateReqInput) -> tuple[int, Any]:
        images = [self._decoded(url) for url in asked.image_data or ()]
        counts = [self.adapter.num_image_tokens(image) for image in images]
        prompt: list[int] = []
        for token in asked.input_ids:
            is_image = token == self.adapter.image_token_id
            before, after = self.margins if is_image else ([], [])
            prompt += [*before, *[token] * (counts.pop(0) if is_image else 1), *after]
        num_top = asked.top_logprobs_num
        tokens, logprobs, top = self._sample(prompt, images, asked.sampling_params, num_top)
        rows = [[logprob, token, None] for logprob, token in zip(logprobs, tokens, strict=True)]
        about = {"weight_version": self.version, "output_token_logprobs": rows}
        if asked.top_logprobs_num:
            about["output_top_logprobs"] = top
        answer: dict[str, Any] = {"text": "", "output_ids": tokens, "meta_info": about}
        if asked.return_prompt_token_ids:
            answer["prompt_token_ids"] = prompt
        return 200, answer

    @staticmethod
    def _decoded(url: str) -> Any:
        head, _, data = url.partition(",")
        assert head == "data:image/png;base64"
        decoded = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
        assert decoded is not None
        return cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)

    def _sample(
        self, prompt: list[int], images: list[Any], how: SamplingParams, num_top: int
    ) -> tuple[list[int], list[float], list[Any]]:
        rng = np.random.default_rng(how.sampling_seed)
        tokens: list[int] = []
        logprobs: list[float] = []
        top: list[Any] = []
        while len(tokens) < (how.max_new_tokens or 0):
            ids = torch.tensor([[*prompt, *tokens]])
            inputs = self.adapter.forward_inputs(ids, torch.ones_like(ids).bool(), images)
            with torch.no_grad():
                logits = self.model(**inputs).logits[0, -1].float()
            for token, bias in (how.logit_bias or {}).items():
                logits[int(token)] += bias
            table = torch.log_softmax(logits / (how.temperature or 1.0), dim=-1)
            kept = TopPLogitsWarper(how.top_p)(ids, table[None].double())[0]
            drawn = rng.choice(len(table), p=torch.softmax(kept, -1).numpy())
            chosen = int(table.argmax()) if how.temperature == 0 else int(drawn)
            tokens.append(chosen)
            logprobs.append(float(table[chosen]))
            best = table.topk(num_top)
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            top.append([[logprob, token, None] for logprob, token in pairs])
            if chosen in (how.stop_token_ids or ()):
                break
        return tokens, logprobs, top

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        requests: dict[str, tuple[type[Strict], Any]] = {
            "/generate": (GenerateReqInput, self.generate),
            "/update_weights_from_disk": (
                UpdateWeightFromDiskReqInput,
                self.update_weights_from_disk,
            ),
        }
        kind, answer = requests[path]
        with self._lock:
            self.asked.append(json.loads(body))
            if self.failure is not None:
                failure, self.failure = self.failure, None
                return failure
            try:
                asked = kind.model_validate_json(body)
            except ValidationError as error:
                return 422, {"detail": str(error)}
            found: tuple[int, Any] = answer(asked)
            return found


@contextmanager
def serving() -> Iterator[tuple[str, Twin]]:
    """A running server: its address, and what it does."""
    twin = Twin()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200 if self.path == "/health" else 404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(*twin.answer(self.path, body))

        def _send(self, status: int, content: Any) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", twin
    finally:
        server.shutdown()
        server.server_close()

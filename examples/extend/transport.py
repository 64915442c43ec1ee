"""A weight transport of your own: sends compressed changes only, without a shared disk.

A training step changes few bits of 16-bit weights, so the difference from the last version is
small. The transfer is exact: both ends keep the last version, and XOR with the difference gives the
next version.

agentrl train examples/own_environment.yaml \
    train.weight_transfer=examples/extend/transport.py:DeltaTransport
"""

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.errors import EngineError
from agentrl.policies.engines.weight_checks import join_digests, tensor_digest
from agentrl.weight_sync import safetensors_files
from agentrl.weight_sync.weight_transport import StreamedTransport


class DeltaTransport(StreamedTransport):
    def __init__(self):
        self._last = {}  # bits of each weight as sent by a rank or received by an engine

    # --- on every rank of the learner ---

    def send(self, weights, link, rank, host):
        import torch  # not at the top: configurations are checked without torch

        for name, tensor in weights.iter_full_weights():  # gathered from all ranks, one by one
            if rank > 0:
                continue
            bits = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().copy()
            delta = bits ^ self._last[name] if name in self._last else bits
            packed = zlib.compress(delta.tobytes(), 1)
            link.send((name, tensor.dtype, tuple(tensor.shape), name in self._last, packed))
            self._last[name] = bits

    # --- on every engine ---

    async def begin(self, engine, version, shapes, checked):
        self._arrived = {}

    async def receive(self, engine, message):
        import numpy as np
        import torch

        name, dtype, shape, is_delta, packed = message
        bits = np.frombuffer(zlib.decompress(packed), np.uint8).copy()
        if is_delta:
            bits ^= self._last[name]
        self._last[name] = bits
        self._arrived[name] = torch.from_numpy(bits).view(dtype).reshape(shape)

    async def finish(self, engine, version, names, digest):
        if missing := [name for name in names if name not in self._arrived]:
            raise EngineError(f"{len(missing)} weights did not arrive, such as {missing[0]}")
        found = {name: tensor_digest(tensor) for name, tensor in self._arrived.items()}
        if digest is not None and join_digests(found) != digest:
            raise EngineError("other weights arrived than were sent")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "weights.safetensors"
            safetensors_files.write(path, self._arrived)
            await engine.load_weights(path, version)

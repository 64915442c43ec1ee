"""Measure memory and time to load and write model weights (python benchmarks/weight_memory.py).

Uses a random Qwen2.5-VL of 200 million parameters in bfloat16 with float32 master weights, on ranks
over gloo. For each operation, it reports the peak host memory that a rank used in addition to the
memory it held before, excluding shards of a model that the operation creates; the maximum over all
ranks. Pages of mapped files do not count, as the system drops them when memory is short.
`--before PATH` measures another checkout of agentrl as well.
"""

import argparse
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from conditions import conditions
from rich.console import Console
from rich.table import Table

_SIZES = {
    "hidden": 1024, "layers": 14, "heads": 16, "kv_heads": 8, "intermediate": 3584,
    "vision_hidden": 128,
}  # fmt: skip
_SAMPLE_S = 0.001
_UPDATES = 3
Measured = dict[str, tuple[float, float]]
"""MB and seconds by operation."""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--before", type=Path, help="another checkout of agentrl")
    parser.add_argument("--small", action="store_true", help="the tiny model: times, not memory")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--merge", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        if options.merge:
            print(json.dumps(_measure_merge(options.scratch)))
        else:
            print(json.dumps(_measure(options.scratch, options.rank, options.ranks)))
        return
    print(conditions("torch", "transformers", "safetensors"))
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parameters, layer = _build(folder / "model", {} if options.small else _SIZES)
        print(f"model:    {parameters / 1e6:.0f}M parameters, {layer * 4 / 1e6:.0f} MB per layer")
        found = {}
        for name, code in {"before": options.before, "now": here}.items():
            if code is not None:
                found[name] = _run_ranks(folder, code, options.ranks)
    Console().print(_table(found))


def _build(folder: Path, sizes: dict[str, int]) -> tuple[int, int]:
    """Build the model in bfloat16; return its parameter count and that of one decoder layer."""
    import torch
    from safetensors.torch import load_file, save_file

    from agentrl.policies import tiny_model

    file = tiny_model.build(folder, 0, **sizes) / "model.safetensors"
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    layer = sum(t.numel() for name, t in weights.items() if "layers.0." in name)
    return sum(t.numel() for t in weights.values()), layer


def _run_ranks(scratch: Path, code: Path, ranks: int) -> Measured:
    """Return the maxima over all ranks, each in a process that imports the given checkout."""
    shutil.rmtree(scratch / "step-000001", ignore_errors=True)
    (scratch / "rendezvous").unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--ranks", str(ranks), "--scratch", str(scratch)]

    def results(count: int, *more: str) -> list[Measured]:
        processes = [
            subprocess.Popen(
                [*command, "--rank", str(rank), *more],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        outputs = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit("a rank failed")
        return [json.loads(output.splitlines()[-1]) for output in outputs]

    found = results(ranks)
    worst = {n: tuple(map(max, *(one[n] for one in found), (0, 0))) for n in found[0]}
    return worst | results(1, "--merge")[0]


def _measure(scratch: Path, rank: int, ranks: int) -> Measured:
    """Measure the operations on one rank, in order."""
    from agentrl.config import Config
    from agentrl.training.learner.learner import Learner
    from agentrl.training.learner.learner_settings import LearnerSettings

    config = Config()
    config.model.path, config.model.dtype = str(scratch / "model"), "bfloat16"
    rendezvous = f"file://{scratch / 'rendezvous'}" if ranks > 1 else None
    _warm_up()
    found: Measured = {}
    with _measured("load", found) as made:
        learner = Learner(LearnerSettings.of(config), scratch / "model", rank, ranks, rendezvous)
        models: Any = learner._models
        made.append(models.policy)
    with _measured("reference", found) as made:
        reference = models.make_reference()
        if hasattr(reference, "copy_merged"):
            reference.copy_merged(models.policy)
        else:  # an earlier version
            reference.load_full_weights(models.policy.master_weights())
        made.append(reference)
    file = scratch / "published.safetensors"
    operations: dict[str, Callable[[], Any]] = {
        "publish a file": lambda: learner.save_weights(file),
        "save_base": lambda: learner.save_base(scratch / "base.safetensors"),
        "export": lambda: learner.export(scratch / "exported"),
        "load a file": lambda: learner.load_weights(file),
    }
    for name, operation in operations.items():
        with _measured(name, found):
            operation()
    _measure_checkpoints(scratch, learner, found)
    learner.close()
    return found


def _measure_checkpoints(scratch: Path, learner: Any, found: Measured) -> None:
    """Measure writing the state directly, and in the background, alone and during updates."""
    from trainer import answers

    from agentrl.policies.models import adapter_for

    samples = answers(adapter_for(scratch / "model"), 4, 4, 8)
    folders = iter(scratch / f"background-{number}" for number in range(9))

    def update() -> float:
        started = time.perf_counter()
        learner.update(samples)
        return time.perf_counter() - started

    def written() -> None:
        while not learner.is_state_saved():
            time.sleep(0.005)

    update()  # allocates the optimizer's moments
    with _measured("checkpoint", found):
        learner.save_state(scratch / "step-000001" / "learner")
    if not hasattr(learner, "begin_save_state"):  # an earlier version
        return
    with _measured("checkpoint, copied", found):
        learner.begin_save_state(next(folders))
    with _measured("checkpoint, then written", found):
        written()
    alone = [update() for _ in range(_UPDATES)]
    found["update"] = (0.0, median(alone))
    during = []
    for folder in islice(folders, _UPDATES):
        learner.begin_save_state(folder)
        during.append(update())
        written()
        shutil.rmtree(folder, ignore_errors=True)
    found["update while written"] = (0.0, median(during))


def _measure_merge(scratch: Path) -> Measured:
    """Measure `agentrl merge`, which runs in a single process."""
    from agentrl.config import LoraConfig
    from agentrl.training.checkpoints.model_export import export_model

    _warm_up()
    found: Measured = {}
    with _measured("merge", found):
        export_model(
            scratch / "step-000001",
            scratch / "model",
            scratch / "merged",
            "bfloat16",
            LoraConfig(),
        )
    return found


def _warm_up() -> None:
    """Run a small learner, so that the measurements exclude imports."""
    import torch

    from agentrl.config import Config
    from agentrl.policies import tiny_model
    from agentrl.training.learner.learner import Learner
    from agentrl.training.learner.learner_settings import LearnerSettings

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as other:
        folder = tiny_model.build(Path(other) / "tiny", 0)
        learner = Learner(LearnerSettings.of(Config()), folder)
        learner.export(Path(other) / "exported")
        learner.close()


@contextmanager
def _measured(name: str, found: Measured) -> Iterator[list[Any]]:
    """Record peak memory and time of the block, which may append the models it creates."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, done = _held(), 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_S):
            peak = max(peak, _held())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    made: list[Any] = []
    started = time.perf_counter()
    yield made
    seconds = time.perf_counter() - started
    done.set()
    thread.join()
    shards = [
        getattr(tensor, "_local_tensor", tensor)
        for model in made
        for tensor in model.state_tensors().values()
    ]
    own = sum(shard.numel() * shard.element_size() for shard in shards)
    found[name] = ((peak - before - own) / 1e6, seconds)


def _held() -> int:
    """Return the bytes of this process that are not backed by files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * sum(
        int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))
    )


def _table(found: dict[str, Measured]) -> Table:
    names = list(found)
    table = Table("operation", *(f"{what}, {n}" for what in ("MB", "s") for n in names))
    if len(names) == 2:
        table.add_column("MB, ratio")
        table.add_column("s, ratio")
    for operation in found["now"]:
        values = [found[name][operation] for name in names]
        cells = [f"{mb:.0f}" for mb, _ in values] + [f"{seconds:.2f}" for _, seconds in values]
        if len(values) == 2:
            (mb, seconds), (mb_now, seconds_now) = values
            cells += [f"{mb_now / max(mb, 1e-9):.2f}", f"{seconds_now / seconds:.2f}"]
        table.add_row(operation, *cells)
    return table


if __name__ == "__main__":
    main()

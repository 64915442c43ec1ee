"""Compare a micro-batch's images as the processor's floats and as 8-bit values: time and bytes.

    python benchmarks/image_upload.py

For tiny models of the vision families, measures the seconds of one CPU core to build the tensors of
27 screens of 364x616 pixels, and the bytes to upload. The device converts 8-bit values to floats.
Both methods alternate within one process; compare ratios, not times.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from conditions import conditions
from family_models import FAMILIES, build
from rich.console import Console
from rich.table import Table

from agentrl.policies.models import adapter_for


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    console.print(conditions("torch", "transformers"), highlight=False, soft_wrap=True)
    table = Table(title="27 screens")
    for column in (
        "family",
        "seconds as floats",
        "as 8 bits",
        "ratio",
        "MB as floats",
        "as 8 bits",
    ):
        table.add_column(column, justify="left" if column == "family" else "right")
    rng = np.random.default_rng(0)
    screens = [rng.integers(0, 255, (616, 364, 3), dtype=np.uint8) for _ in range(27)]
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as scratch:
            adapter = adapter_for(build(name, Path(scratch) / "model"))
        if adapter.image_token_id is None:
            continue
        images = [adapter.scale(screen, None, 364 * 616) for screen in screens]
        ways = {"floats": adapter.pixels, "bits": adapter.compact_pixels}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        sizes = {}
        for number in range(options.rounds + 1):
            for way, make in ways.items():
                started = time.perf_counter()
                tensors = make(images)
                if number:  # the first round warms up
                    seconds[way].append(time.perf_counter() - started)
                sizes[way] = sum(tensor.nbytes for tensor in tensors.values()) / 1e6
        floats, bits = median(seconds["floats"]), median(seconds["bits"])
        table.add_row(
            name, f"{floats:.3f}", f"{bits:.3f}", f"{bits / floats:.2f}",
            f"{sizes['floats']:.1f}", f"{sizes['bits']:.1f}",
        )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()

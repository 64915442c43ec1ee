"""Measure how precisely taps written in each dialect hit targets, on screens of several sizes.

Run: python benchmarks/dialects.py [--targets 25]

A virtual phone per size shows targets. Each screenshot is resized as the dialect's model sees it
(to `--max-pixels`, and as its server would); the tap is spelled, parsed and performed over ADB; and
the app reports where it was touched. A cell shows the largest distance in screen pixels between the
center of a target and the pixel that was hit, with the smallest distance that the dialect can
express for that target in brackets.
"""

import argparse
from contextlib import closing

from agentrl.actions.dialect import SCREENS
from agentrl.check.phones import tap_accuracy
from agentrl.config import ModelConfig
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.extension_points import DIALECT
from virtual_phone import spawn
from virtual_phone.apps.probe_app import PROBE


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", type=int, default=len(tap_accuracy.TARGETS))
    parser.add_argument("--max-pixels", type=int, default=ModelConfig().max_pixels)
    arguments = parser.parse_args()
    names = [one.name.replace("_", "-") for one in DIALECT.extensions()]
    speakers = [tap_accuracy.speaker_of(name, None, arguments.max_pixels) for name in names]
    server = AdbServer.from_environment()
    server.ensure()
    cells: dict[str, list[str]] = {name: [] for name in names}
    for size in SCREENS:
        with spawn(1, [PROBE], size=size, tempo="quick") as phones:
            (serial,) = phones.serials
            server.connect(serial)
            with closing(AdbPhone(server, serial)) as phone:
                targets = tap_accuracy.TARGETS[: arguments.targets]
                made = list(tap_accuracy.hits(phone, speakers, targets))
            for name, own in zip(names, zip(*made, strict=True), strict=True):
                error, least = max(hit.error for hit in own), max(hit.least for hit in own)
                cells[name].append(f"{error:g} ({least:g})")
            server.disconnect(serial)
    print("| dialect |", " | ".join(f"{width}x{height}" for width, height in SCREENS), "|")
    print("|---" * (len(SCREENS) + 1) + "|")
    for name, row in cells.items():
        print(f"| `{name}` |", " | ".join(row), "|")


if __name__ == "__main__":
    main()

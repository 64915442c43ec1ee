"""`python -m virtual_phone`: run virtual phones on this machine until Ctrl-C."""

import argparse
import re
import signal
import sys
import threading

from virtual_phone.apps.probe_app import PROBE
from virtual_phone.errors import PhoneError
from virtual_phone.spawn import spawn

_LOOK_S = 0.5
"""Seconds between checks that the phones are still running."""


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} must have the form WIDTHxHEIGHT")
    return int(found[1]), int(found[2])


def main() -> int:
    """Start phones, print how to connect to them, and keep them running until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m virtual_phone", description=__doc__)
    parser.add_argument("-n", "--num-phones", type=int, default=1, help="number of phones")
    parser.add_argument(
        "--app", action="append", dest="apps", metavar="MODULE:CLASS",
        help="app to install, or path/file.py:Class; may be repeated (default: a test app)",
    )  # fmt: skip
    parser.add_argument("--size", type=_size, default=(720, 1280), help="default: 720x1280")
    parser.add_argument("--tempo", default="real", help="real, or quick for instant gestures")
    parser.add_argument("--seed", type=int, default=0, help="seed for clocks and delays")
    parser.add_argument("--faults", help="YAML file with a fault plan")
    parser.add_argument("--auth", action="store_true", help="require ADB key authentication")
    options = vars(parser.parse_args())
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with spawn(options.pop("num_phones"), options.pop("apps") or [PROBE], **options) as phones:
            for serial in phones.serials:
                print(f"adb connect {serial}", flush=True)
            while phones.alive and not stop.wait(_LOOK_S):
                pass
            return 0 if phones.alive else 1
    except PhoneError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

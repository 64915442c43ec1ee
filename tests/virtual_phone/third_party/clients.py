"""Install third-party clients, run them on virtual phones, and write the table of the docs.

    python -m tests.virtual_phone.third_party.clients

installs all clients into a cache, runs each on a separate phone, and writes the table of
docs/virtual-phone.md. The calls of each client are in python_clients.py and node_clients.mjs.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from filelock import FileLock

from tests.virtual_phone.adb_station import PROBE, programs, stations
from virtual_phone import VirtualPhones, spawn

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "virtual-phone.md"
INSTALL_S, RUN_S = 600, 120
"""Deadlines in seconds."""
LICENSES = {
    "adb-shell": "Apache-2.0",
    "uiautomator2": "MIT",
    "airtest": "Apache-2.0",
    "mobilerun-core-local": "MIT",
    "autoglm-gui": "Apache-2.0",
    "android-env": "Apache-2.0",
    "androidviewclient": "Apache-2.0",
    "@devicefarmer/adbkit": "Apache-2.0",
    "@yume-chan/adb": "MIT",
    "@mobilenext/mobile-mcp": "Apache-2.0",
}
"""Clients and their licenses, in the order of the table."""


class NotInstalled(Exception):
    """A registry cannot be reached, or a program is missing; the message says which."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Result:
    """One call of one client."""

    call: str
    refusal: str
    """What went wrong; empty if the answer is what a real phone would say."""
    seconds: float


def installed(source: Path, command: Sequence[str]) -> Path:
    """Return a folder with the pinned packages of a file, installing them if necessary.

    Raises:
        NotInstalled: the packages cannot be installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentrl-clients"
    digest = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache / digest
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{digest}.lock", timeout=INSTALL_S):
        if not (folder / ".complete").exists():
            if which(command[0]) is None:
                raise NotInstalled(f"{command[0]} is not installed")
            folder.mkdir(exist_ok=True)
            (folder / source.name).write_bytes(source.read_bytes())
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
            if done.returncode:
                lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
                raise NotInstalled(f"cannot install {source.name}: {lines[-1][:300]}")
            (folder / ".complete").touch()
    return folder


def python_packages(source: Path = HERE / "requirements.txt") -> Path:
    """Return the folder of the Python clients, or of other packages that a file pins."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    return installed(source, [*pip, "--no-deps", "--target", ".", "-r", source.name])


def node_packages() -> Path:
    """Return the folder of the Node clients."""
    npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    return installed(HERE / "package.json", npm)


def versions() -> dict[str, str]:
    """Return the pinned version of each client."""
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (HERE / "requirements.txt").read_text(), re.M))
    node = json.loads((HERE / "package.json").read_text())["dependencies"]
    return {name: {**pins, **node}[name] for name in LICENSES}


def run(name: str, serial: str, adb: str, port: int) -> list[Result]:
    """Run the calls of one client on a phone.

    Raises:
        NotInstalled: it cannot be installed.
    """
    where = [name, serial, adb, str(port)]
    env = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(port), "PYTHONWARNINGS": "ignore"}
    if name.startswith("@"):
        folder, command = node_packages(), ["node", str(HERE / "node_clients.mjs")]
    else:
        folder, command = python_packages(), [sys.executable, str(HERE / "python_clients.py")]
        env["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        [*command, *where],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, (name, done.stderr[-2000:])
    return [Result(**json.loads(line)) for line in done.stdout.splitlines()]


def start_phones() -> VirtualPhones:
    """Start a phone for each client."""
    return spawn(len(LICENSES), [PROBE], effect_delay_ms=(0, 0))


def run_on(phones: VirtualPhones, name: str) -> list[Result]:
    """Run a client on its own phone and adb server, because some clients restart the server.

    Raises:
        NotInstalled: it cannot be installed.
    """
    with stations(programs()[0], phones) as found:
        station = found[list(LICENSES).index(name)]
        return run(name, station.serial, station.program, station.server.port)


def row(name: str, calls: Sequence[Result]) -> str:
    """Return a client's row of the table."""
    good = ", ".join(f"`{one.call}`" for one in calls if not one.refusal)
    bad = ", ".join(f"`{one.call}`" for one in calls if one.refusal)
    return f"| {name} {versions()[name]} | {LICENSES[name]} | {good} | {bad or 'none'} |\n"


def main() -> None:
    """Run all clients, print why calls failed, and write the table."""
    with start_phones() as phones:
        results = {name: run_on(phones, name) for name in LICENSES}
    for name, calls in results.items():
        seconds = sum(one.seconds for one in calls)
        print(f"{name}: {sum(not one.refusal for one in calls)} of {len(calls)} in {seconds:.1f} s")
        for one in calls:
            if one.refusal:
                print(f"  {one.call}: {one.refusal}")
    head, start, rest = PAGE.read_text().partition("<!-- clients -->\n")
    _, end, tail = rest.partition("<!-- end of clients -->")
    columns = "| client | license | answered as by a real phone | otherwise |\n|---|---|---|---|\n"
    rows = "".join(row(name, calls) for name, calls in results.items())
    PAGE.write_text(f"{head}{start}{columns}{rows}{end}{tail}")


if __name__ == "__main__":
    main()

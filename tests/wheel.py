"""The wheel, built as for a release, and commands of an installation of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("agentrl", "virtual_phone", "envs", "rewards", "configs")
FILES = ("pyproject.toml", "README.md", "LICENSE")


def build_wheel(copy: Path) -> Path:
    """Built from an sdist that is built from a copy of this checkout."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--no-isolation", ".", cwd=copy)
    (found,) = (copy / "dist").glob("*.whl")
    return found


def install(wheel: Path, folder: Path) -> Path:
    """A virtual environment with the wheel and nothing else; returns its site-packages."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=folder)
    return next((folder / "lib").glob("python3*")) / "site-packages"


def environment() -> dict[str, str]:
    """Without PYTHONPATH, which would make the checkout importable."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def result(
    *command: str | Path, cwd: Path, timeout_s: float = 150
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout_s
    )


def run(*command: str | Path, cwd: Path, timeout_s: float = 150) -> str:
    done = result(*command, cwd=cwd, timeout_s=timeout_s)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout

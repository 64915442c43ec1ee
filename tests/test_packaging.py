import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("agentrl", "envs", "rewards", "configs")
FILES = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from an sdist that is built from a copy of this checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--no-isolation", ".", cwd=copy)
    (found,) = (copy / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it, and its dependencies from the present one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=folder)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_the_wheel_holds_what_it_should(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = [p for p in (ROOT / "agentrl").rglob("*.py") if "__pycache__" not in p.parts]
    sources += [p for p in (ROOT / "envs").rglob("*.py") if "__pycache__" not in p.parts]
    for path in sources:
        inside = path.relative_to(ROOT)
        expected = inside if inside.parts[0] == "agentrl" else Path("agentrl") / inside
        assert expected.as_posix() in names
    for wanted in (
        "agentrl/configs/number_game.yaml", "agentrl/rewards/__init__.py", "agentrl/py.typed",
        "agentrl/replay/templates/episode.html.jinja",
    ):  # fmt: skip
        assert wanted in names
    assert not [
        n for n in names if n.startswith(("envs", "rewards", "tests")) or "__pycache__" in n
    ]


def test_the_installed_command_answers(installed: Path, tmp_path: Path) -> None:
    assert "train" in run(installed / "agentrl", "--help", cwd=tmp_path)


def test_the_installed_package_finds_envs_and_rewards(installed: Path, tmp_path: Path) -> None:
    code = (
        "import agentrl, agentrl.envs, agentrl.rewards; from agentrl import env;"
        "print(agentrl.__file__, env.game('NumberGame-v0').id)"
    )
    output = run(installed / "python", "-c", code, cwd=tmp_path)
    assert "NumberGame-v0" in output
    assert str(ROOT) not in output


def test_the_installed_command_finds_configurations_by_name(
    installed: Path, tmp_path: Path
) -> None:
    output = run(installed / "agentrl", "train", "number_game", "--dry-run", cwd=tmp_path)
    assert "NumberGame-v0" in output

"""The wheel, installed with only its required dependencies."""

import importlib.metadata
import json
import signal
import subprocess
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentrl.devices.adb import AdbServer
from tests.wheel import ROOT, environment, install, result, run

ONE_PHONE = "devices.source=virtual:1"
MISTAKES = {
    "number_gane": "did you mean 'number_game'",
    "number_game train.stpes=3": "did you mean 'steps'",
    "number_game env.id=NumberGane-v0": "did you mean 'NumberGame-v0'",
    "number_game rewards='[{function: \"agentrl.rewards.number_game:outcom\"}]'": "'outcome'",
}
Answer = tuple[int, str, str]
"""Exit code, stdout and stderr."""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and links to its required dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    site = install(wheel, folder)
    (ours,) = importlib.metadata.distributions(name="agentrl-screens", path=[str(site)])
    for needed in dependencies(ours, {}).values():
        link(needed, site)
    return folder / "bin"


def dependencies(of: Distribution, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """The required dependencies of a distribution, recursively."""
    for requirement in map(Requirement, of.requires or ()):
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and name not in known:
            known[name] = importlib.metadata.distribution(name)
            dependencies(known[name], known)
    return known


def link(distribution: Distribution, site: Path) -> None:
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        (site / top).symlink_to(str(distribution.locate_file(top)))


def test_the_wheel_contains_all_modules_and_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = (ROOT / "agentrl", ROOT / "virtual_phone")
    sources = [p for folder in packages for p in folder.rglob("*.py")]
    sources += [p for p in (ROOT / "envs").rglob("*.py") if "__pycache__" not in p.parts]
    for path in sources:
        inside = path.relative_to(ROOT)
        expected = (
            inside if inside.parts[0] in ("agentrl", "virtual_phone") else Path("agentrl") / inside
        )
        assert expected.as_posix() in names
    for wanted in (
        "agentrl/configs/number_game.yaml", "agentrl/configs/suites/counting.yaml",
        "agentrl/rewards/__init__.py", "agentrl/py.typed",
        "agentrl/viewer/export/templates/episode.html.jinja",
        "agentrl/viewer/static/page.html",
        "agentrl/viewer/static/style.css",
        "agentrl/viewer/static/views/episode.js",
        "agentrl/viewer/static/vendor/uPlot.LICENSE.txt",
    ):  # fmt: skip
        assert wanted in names
    assert not [
        n for n in names if n.startswith(("envs", "rewards", "tests")) or "__pycache__" in n
    ]


def test_the_required_dependencies_contain_no_model_libraries(
    installed: Path, tmp_path: Path
) -> None:
    names = ("torch", "tokenizers", "transformers", "safetensors", "ray", "vllm", "pytest")
    code = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"
    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "[]"


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    assert "train" in run(installed / "agentrl", "--help", cwd=tmp_path)


def test_the_installed_package_finds_envs_and_rewards(installed: Path, tmp_path: Path) -> None:
    code = (
        "import agentrl, agentrl.envs, agentrl.rewards; from agentrl import env_registry;"
        "print(agentrl.__file__, env_registry.find_env('NumberGame-v0').id)"
    )
    output = run(installed / "python", "-c", code, cwd=tmp_path)
    assert "NumberGame-v0" in output
    assert str(ROOT) not in output


@pytest.fixture(scope="module")
def answers(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Results of some commands, all run in one process: starting one takes a second."""
    commands = [f"{kind} number_game {ONE_PHONE}" for kind in ("train", "train --dry-run", "eval")]
    commands += [f"train --dry-run {mistake}" for mistake in MISTAKES]
    folder = tmp_path_factory.mktemp("there")
    code = """if True:
        import contextlib, io, json, shlex, sys
        from agentrl.cli import run
        answers = {}
        for command in sys.argv[1:]:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(shlex.split(command))
            answers[command] = code, out.getvalue(), err.getvalue()
        print(json.dumps(answers))
    """
    found: dict[str, Answer] = json.loads(
        run(installed / "python", "-c", code, *commands, cwd=folder)
    )
    assert not list(folder.iterdir())
    return found


@pytest.mark.parametrize("kind", ["train", "train --dry-run", "eval"])
def test_all_missing_model_libraries_are_listed_in_one_message(
    answers: dict[str, Answer], kind: str
) -> None:
    code, out, err = answers[f"{kind} number_game {ONE_PHONE}"]
    assert (code, out) == (2, "")
    assert err.startswith("ConfigError: models need packages that are not installed (safetensors, ")
    assert len(err.splitlines()) == 1
    for extra in ("train", "gpu", "cpu", "ray"):
        assert f"agentrl-screens[{extra}]" in err


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_names_are_reported_before_missing_libraries(
    answers: dict[str, Answer], mistake: str
) -> None:
    assert MISTAKES[mistake] in answers[f"train --dry-run {mistake}"][2]


@pytest.mark.slow
@pytest.mark.adb
def test_a_scripted_player_can_be_evaluated_and_listed(
    installed: Path, tmp_path: Path, adb_server: AdbServer
) -> None:
    command = ("eval", "number_game", "--policy", "expert", "--episodes", "1", "eval.rings=null")
    run(installed / "agentrl", *command, ONE_PHONE, cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    listed = run(installed / "agentrl", "episodes", folder, cwd=tmp_path)
    assert "1 of 1 episodes" in listed
    assert "terminated" in listed


@pytest.mark.adb
def test_doctor_says_how_to_install_model_libraries(
    installed: Path, tmp_path: Path, adb_server: AdbServer
) -> None:
    done = result(installed / "agentrl", "doctor", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "agentrl-screens[train]" in done.stdout
    assert not done.stderr


@pytest.mark.adb
def test_phones_start_and_stop(installed: Path, tmp_path: Path, adb_server: AdbServer) -> None:
    said = []
    with subprocess.Popen(
        [installed / "agentrl", "phone", "up"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0, said
    assert "All phones have stopped.\n" in said

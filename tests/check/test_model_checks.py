"""The checks of adapters and chat formats, on the examples and on broken copies of them."""

import sys
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl.check import checks, findings
from agentrl.errors import ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.trial_episodes import check_lengths

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from family_models import build

EXTEND = Path(__file__).parents[2] / "examples" / "extend"


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("LLaVA (generic)", tmp_path_factory.mktemp("family") / "llava")


def broken(tmp_path: Path, example: str, name: str, *edits: tuple[str, str]) -> str:
    """A copy of an example with other lines, under a name of its own."""
    text = (EXTEND / f"{example}.py").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / f"broken_{name}.py"
    file.write_text(text)
    return str(file)


def failures(kind: str, target: str, *settings: str) -> list[str]:
    found = findings(kind, target, settings, 120.0)
    return [finding.detail for finding in found if finding.state == "wrong"]


def test_the_example_of_an_adapter_passes(llava: Path) -> None:
    for check in checks("model", f"{EXTEND}/model_adapter.py:Llava", f"path={llava}"):
        check()


def test_the_example_of_a_chat_format_passes() -> None:
    for check in checks("chat", f"{EXTEND}/chat_format.py:Names"):
        check()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "lie",
            '(self._side // vision["patch_size"]) ** 2',
            '(self._side // vision["patch_size"]) ** 2 - 1',
            "num_image_tokens returns 15 for an image of 56x56 pixels, but the model's own "
            "processor produces 16",
        ),
        ("colors", "255 - self._mean", "255 - 0.2 - self._mean", "log-probabilities differ"),
        ("bans", "(self.image_token_id,)\n", "()\n", "a policy could sample an image"),
    ],
)
def test_a_broken_adapter_fails_with_a_reason(
    name: str, old: str, new: str, message: str, llava: Path, tmp_path: Path
) -> None:
    file = broken(tmp_path, "model_adapter", name, (old, new))
    assert any(message in why for why in failures("model", f"{file}:Llava", f"path={llava}"))


def test_a_job_with_an_adapter_that_lies_fails_before_any_work(llava: Path, tmp_path: Path) -> None:
    edit = '(self._side // vision["patch_size"]) ** 2'
    file = broken(tmp_path, "model_adapter", "job", (edit, f"{edit} + 1"))
    settings = [f"model.path={llava}", f"model.adapter={file}:Llava", "rollout.engine=hf"]
    job = configuration.load("number_game", [*settings, "model.chat=chatml"])
    with pytest.raises(ConfigError, match=r"num_image_tokens returns 17 .* processor produces 16"):
        check_lengths(plan_rollouts(job), job.warm_start, [])


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("words", "*parts, *self", "*self", "'user-words' is not in the prompt"),
        ("end", "cls(model.token_ids[_END])", "cls(40)", "end_id=40 is not a special token"),
    ],
)
def test_a_broken_chat_format_fails_with_a_reason(
    name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    file = broken(tmp_path, "chat_format", name, (old, new))
    assert any(message in why for why in failures("chat", f"{file}:Names"))

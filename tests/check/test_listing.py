"""`agentrl list`: what there is of each kind, and where it comes from."""

import json
import sys

import pytest

from agentrl import cli
from agentrl.check import listed, points

OWN = ("logger", "driver", "capture", "env", "translator", "player", "reward", "suite", "sampler")


@pytest.mark.parametrize("kind", OWN)
def test_everything_built_in_has_a_description(kind: str) -> None:
    found = listed(kind)
    assert found
    for one in found:
        assert one.origin == "agentrl"
        assert len(one.description) > 10, one
        assert "cannot be loaded" not in one.description, one
        assert not one.description.startswith("See "), one


def test_the_names_of_a_kind_are_those_that_settings_take() -> None:
    names = {kind: {one.name for one in listed(kind)} for kind in OWN}
    assert {"console", "file", "wandb"} <= names["logger"]
    assert names["driver"] == {"adbutils", "ppadb"}
    assert names["capture"] == {"raw", "png", "framebuffer", "stream"}
    assert "NumberGame-v0" in names["env"] & names["translator"]
    assert "NumberGame-v0/expert" in names["player"]
    assert {"env_reward", "matching.exact", "maths.Accuracy"} <= names["reward"]


def test_an_installed_package_is_listed_with_its_origin(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lodge-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lodge\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[agentrl.reward]\nkind = lodge:kind\nlost = lodge:lost\n"
    )
    (tmp_path / "lodge.py").write_text(
        'def kind(episode):\n    """Always one."""\n    return 1.0\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.run(["list", "reward", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["kind"] == {
        "name": "kind", "origin": "lodge", "description": "Always one.", "target": "lodge:kind",
    }  # fmt: skip
    assert rows["lost"]["description"].startswith("cannot be loaded: lodge has no 'lost'")


def test_what_needs_torch_is_listed_without_it_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "agentrl.policies.models.families.qwen_vl", raising=False)
    found = {one.name: one.description for one in listed("model")}
    assert found["qwen_vl"] == (
        "needs torch, which is not installed; run: pip install 'agentrl-screens[train]'"
    )
    assert not any("cannot be loaded" in description for description in found.values())


def test_without_a_kind_all_kinds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["list"]) == 0
    said = capsys.readouterr().out
    for kind, point in points().items():
        (line,) = (line for line in said.splitlines() if line.split()[:1] == [kind])
        assert line.split()[2] == point.setting
    assert cli.run(["list", "logger"]) == 0
    assert "Next: agentrl check logger console" in capsys.readouterr().out


def test_the_class_to_derive_from_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["list", "capture"]) == 0
    said = capsys.readouterr().out
    assert "Derive your own class from agentrl.devices.capture.Capture" in said

"""Every row and every configuration of docs/data.md works."""

import json

import pytest
import yaml

from agentrl.config import from_dict
from tests.data.rows import picture, png
from tests.data.test_contracts import RIGHT, WRONG, scored
from tests.test_docs import blocks, name_of

PAGE = "data.md"
PAIRS = list(zip(blocks(PAGE, "json"), blocks(PAGE, "yaml"), strict=True))


@pytest.mark.parametrize(
    ("row", "settings"), PAIRS, ids=["easyr1", "r1v", "verl", "lmm", "trl", "gsm8k", "mmmu"]
)
def test_rows_load_and_are_scored_with_the_yaml_below_them(tmp_path, monkeypatch, row, settings):
    config = from_dict(yaml.safe_load(settings))
    (reward,) = config.rewards
    if "maths" in reward.function:
        pytest.importorskip("math_verify")
    monkeypatch.chdir(tmp_path)
    (code,) = [code for code in blocks(PAGE, "python") if name_of(code) == "their_rewards.py"]
    (tmp_path / "their_rewards.py").write_text(code)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png(picture(20)))
    (tmp_path / "rows.jsonl").write_text(row.replace("FOLDER", str(tmp_path)))
    right, wrong = (
        scored(
            tmp_path / config.env.kwargs["data"],
            reply,
            reward.function.replace("their_rewards.py", f"{tmp_path}/their_rewards.py"),
            kwargs=reward.kwargs,
            **{k: v for k, v in config.env.kwargs.items() if k != "data"},
        )
        for reply in (RIGHT, WRONG)
    )
    assert right.reward == 1.0
    assert wrong.reward <= 0.5
    assert json.loads(row)

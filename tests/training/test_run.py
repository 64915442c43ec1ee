import json
from pathlib import Path

from agentrl.training.run import RunFolder


def evaluations(folder: Path) -> list[tuple[str, int, float]]:
    lines = (folder / "evaluations.jsonl").read_text().splitlines()
    return [(e["name"], e["step"], e["reward"]) for e in map(json.loads, lines)]


def test_a_resumed_run_leaves_every_evaluation_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name, step in (("expert", 0), ("step 5", 5), ("step 10", 10)):
        folder.add_evaluation({"name": name, "step": step, "reward": 1.0})
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"name": "step 1')  # An older version was killed here.
    folder.rewind(5)
    assert evaluations(tmp_path) == [("expert", 0, 1.0), ("step 5", 5, 1.0)]
    folder.add_evaluation({"name": "step 5", "step": 5, "reward": 2.0})
    assert evaluations(tmp_path) == [("expert", 0, 1.0), ("step 5", 5, 2.0)]


def test_a_run_without_evaluations_can_be_rewound(tmp_path: Path) -> None:
    RunFolder(tmp_path).rewind(0)
    assert evaluations(tmp_path) == []

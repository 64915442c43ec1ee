import shutil

import pytest

from agentrl.errors import ConfigError
from agentrl.training.checkpoints import checkpoint_store
from tests.training.saved_checkpoints import save_checkpoint


class Notebook:
    """A learner whose whole state is one number."""

    def __init__(self, number=0, dies=False):
        self.number, self.dies = number, dies

    def save_state(self, path):
        path.write_text(str(self.number))
        if self.dies:
            raise KeyboardInterrupt

    def restore(self, path):
        self.number = int(path.read_text())


def names(run):
    return sorted(p.name for p in (run / "checkpoints").iterdir())


def test_the_latest_checkpoints_and_the_best_one_are_kept(tmp_path):
    for step in range(1, 6):
        save_checkpoint(tmp_path, step, Notebook(step), {"step": step}, keep=2, best=step == 2)
    assert names(tmp_path) == ["step-00002", "step-00004", "step-00005"]
    assert checkpoint_store.latest(tmp_path).name == "step-00005"
    assert checkpoint_store.best(tmp_path).name == "step-00002"


def test_a_checkpoint_and_its_best_mark_appear_together(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    save_checkpoint(tmp_path, 1, Notebook(1), {"step": 1}, keep=1, best=True)
    monkeypatch.setattr(checkpoint_store, "_prune", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, Notebook(2), {"step": 2}, keep=1, best=True)
    monkeypatch.undo()
    save_checkpoint(tmp_path, 3, Notebook(3), {"step": 3}, keep=1)
    assert checkpoint_store.best(tmp_path).name == "step-00002"
    assert names(tmp_path) == ["step-00002", "step-00003"]


def test_loading_a_checkpoint_restores_learner_and_loop(tmp_path):
    folder = save_checkpoint(tmp_path, 7, Notebook(3), {"step": 7, "best": None}, keep=1)
    learner = Notebook()
    assert checkpoint_store.load(folder, learner) == {"step": 7, "best": None}
    assert learner.number == 3


def test_a_save_that_dies_keeps_earlier_checkpoints(tmp_path):
    whole = save_checkpoint(tmp_path, 1, Notebook(1), {"step": 1}, keep=1)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, Notebook(2, dies=True), {"step": 2}, keep=1)
    assert checkpoint_store.latest(tmp_path) == whole
    save_checkpoint(tmp_path, 3, Notebook(3), {"step": 3}, keep=1)
    assert names(tmp_path) == ["step-00003"]


def test_a_run_without_checkpoints_has_no_latest(tmp_path):
    assert checkpoint_store.latest(tmp_path) is None
    assert checkpoint_store.best(tmp_path) is None
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint"):
        checkpoint_store.load(tmp_path, Notebook())


def test_saving_a_step_again_replaces_it(tmp_path):
    for number in (1, 2):
        folder = save_checkpoint(tmp_path, 4, Notebook(number), {"step": 4}, keep=2)
    learner = Notebook()
    checkpoint_store.load(folder, learner)
    assert learner.number == 2
    assert names(tmp_path) == ["step-00004"]


def test_a_copy_of_a_checkpoint_is_ignored_and_not_pruned(tmp_path):
    folder = save_checkpoint(tmp_path, 1, Notebook(1), {"step": 1}, keep=1)
    shutil.copytree(folder, folder.with_name("step-00001-backup"))
    assert checkpoint_store.latest(tmp_path) == folder
    save_checkpoint(tmp_path, 2, Notebook(2), {"step": 2}, keep=1)
    assert names(tmp_path) == ["step-00001-backup", "step-00002"]


class Crowded(Notebook):
    """A learner whose disk is full."""

    def save_state(self, path):
        path.mkdir()
        (path / "half").write_text("...")
        raise OSError("no space left on device")


def test_a_save_on_a_full_disk_removes_what_it_wrote(tmp_path):
    save_checkpoint(tmp_path, 1, Notebook(1), {"step": 1}, keep=1)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(tmp_path, 2, Crowded(), {"step": 2}, keep=1)
    assert names(tmp_path) == ["step-00001"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": 3}, "has step 3, but its folder has step 2"),
        ({"step": True}, "has no step"),
        ({"best": "high"}, "best='high' is not a number"),
        ({"kl_coefficient": [1]}, r"kl_coefficient=\[1\] is not a number"),
    ],
)
def test_a_checkpoint_with_values_of_the_wrong_type_is_refused(tmp_path, change, said):
    trainer = {"step": 2, "best": 0.5} | change
    folder = save_checkpoint(tmp_path, 2, Notebook(2), trainer, keep=1)
    with pytest.raises(ConfigError, match=rf"{said}\. Remove this checkpoint"):
        checkpoint_store.load(folder, Notebook())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "two"}', '{"step": 2'])
def test_a_checkpoint_without_a_step_is_refused(tmp_path, text):
    folder = save_checkpoint(tmp_path, 2, Notebook(2), {"step": 2}, keep=1)
    (folder / "trainer.json").write_text(text)
    with pytest.raises(ConfigError, match="step-00002"):
        checkpoint_store.load(folder, Notebook())

"""The teacher of on-policy distillation: its scores, its place beside the policy, its checks."""

import json
import shutil

import pytest

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import Config, ModelConfig, algorithm_config
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.runs.run_folder import RunFolder
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.teacher import check_teacher, open_teacher
from agentrl.training.trainer.training_samples import build_training_samples
from agentrl.types import TokenScores
from tests.policies import families
from tests.training.samples import sample

LARGER = {"hidden": 96, "layers": 3, "heads": 3, "kv_heads": 1}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A larger model with the policy's tokens."""
    return tiny_model.build(tmp_path_factory.mktemp("teacher") / "model", 1, **LARGER)


@pytest.fixture
def settings():
    config = Config(algorithm=algorithm_config("opd"))
    config.rollout.temperature = 0.7
    return LearnerSettings.of(config)


def test_a_teacher_of_another_size_scores_the_policys_tokens(
    settings, teacher, tiny_vlm, model_adapter, tmp_path
):
    items = [sample(model_adapter, seed) for seed in range(2)]
    learner, alone = Learner(settings, tiny_vlm, teacher=teacher), Learner(settings, teacher)
    try:
        learner.update(items)
        scores = learner.score_tokens(items)
        assert [s.teacher_logprobs for s in scores] == alone._logprobs(alone._policy, items)
        assert [s.old_logprobs for s in scores] == learner._logprobs(learner._policy, items)
        assert not any("teacher" in name for name in learner._models.state_tensors())
        learner.save_state(tmp_path / "state")
        again = Learner(settings, tiny_vlm, teacher=teacher)
        again.restore(tmp_path / "state")
        assert again.score_tokens(items) == scores
        again.close()
    finally:
        learner.close()
        alone.close()


def test_the_teacher_is_by_default_the_model_before_training(settings, tiny_vlm, model_adapter):
    items = [sample(model_adapter, 1)]
    learner = Learner(settings, tiny_vlm)
    (before,) = learner.score_tokens(items)
    learner.update(items)
    (after,) = learner.score_tokens(items)
    assert before.teacher_logprobs == before.old_logprobs == after.teacher_logprobs
    assert after.old_logprobs != before.old_logprobs
    learner.close()


def test_training_samples_have_the_teachers_log_ratio_and_its_mean_is_logged():
    algorithm = load_algorithm(algorithm_config("opd", reward_weight=0.0))
    turns = [sample_turn(2, None), sample_turn(1, None)]
    groups = [[scored_episode(turns, (1.0, 0.0)), scored_episode(turns[:1], (0.0,))]]
    lengths = []

    def score_tokens(sequences):
        lengths.extend(one.num_sampled for one in sequences)
        return [
            TokenScores(
                old_logprobs=(-1.0,) * one.num_sampled,
                teacher_logprobs=tuple(-1.5 + k for k in range(one.num_sampled)),
            )
            for one in sequences
        ]

    built = build_training_samples(
        groups, algorithm, score_tokens, max_new_tokens=8, version=0, seed=0
    )
    assert lengths == [2, 1, 2]
    assert [s.advantages for s in built.samples] == [(-0.5, 0.5), (-0.5,), (-0.5, 0.5)]
    assert built.metrics["teacher_kl"] == pytest.approx(0.1)


def test_teachers_that_cannot_score_the_policys_tokens_are_refused(
    teacher, tiny_vlm, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = ModelConfig(path=str(tiny_vlm))
    check_teacher("start", model)
    check_teacher(str(teacher), model)
    check_teacher(str(teacher), ModelConfig())  # the same tokenizer, not yet written
    assert open_teacher(str(teacher), model, tiny_vlm, tmp_path / "out") == teacher
    assert open_teacher("start", model, tiny_vlm, tmp_path / "out") == tiny_vlm

    words = shutil.copytree(teacher, tmp_path / "words")
    tokenizer = json.loads((words / "tokenizer.json").read_text())
    tokenizer["added_tokens"][-1]["content"] = "<other>"
    (words / "tokenizer.json").write_text(json.dumps(tokenizer))
    pixels = shutil.copytree(teacher, tmp_path / "pixels")
    processor = json.loads((pixels / "preprocessor_config.json").read_text())
    (pixels / "preprocessor_config.json").write_text(
        json.dumps({**processor, "image_mean": [0.5, 0.5, 0.5]})
    )
    text = families.build("text", tiny_vlm, tmp_path / "text")
    unfinished = tmp_path / "runs" / "unfinished"
    unfinished.mkdir(parents=True)
    RunFolder(unfinished).save_config(Config().to_dict())
    refused = {
        str(words): "has another vocabulary than the policy",
        str(pixels): "reads images in another way than the policy",
        str(text): "has another image token than the policy",
        str(tmp_path): "the folder has no config.json",
        "tiny": "a new tiny model knows nothing",
        "runs/unfinishd": "no such run (did you mean 'runs/unfinished'?)",
        str(unfinished): "this run has no final model yet; resume it, or name one of its",
        f"{unfinished}/checkpoints/step-00001": "has no checkpoint '1'",
    }
    for name, reason in refused.items():
        with pytest.raises(ConfigError) as error:
            check_teacher(name, model)
        assert reason in str(error.value)

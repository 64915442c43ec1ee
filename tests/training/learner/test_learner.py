import dataclasses
import json
import math
import os
import pickle
import resource
import shutil

import pytest
import torch
import torch.nn.functional as F
import xxhash
from safetensors.torch import load_file

from agentrl import cli
from agentrl import config as configuration
from agentrl.algorithms.core.policy_loss import PolicyLoss, TokenLoss
from agentrl.config import WarmStartConfig
from agentrl.errors import ConfigError, LearnerError
from agentrl.policies import tiny_model
from agentrl.policies.models import load_model
from agentrl.training.batching.packing import pack_micro_batches
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.learner import learner_metrics
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.micro_batches import single_batch
from agentrl.training.learner.optimizer import MAX_SKIPS
from agentrl.training.learner.parallel import sharded_checkpoint
from agentrl.weight_sync.published_weights import publish
from tests.policies import families
from tests.training.samples import sample, with_logprobs, with_scores
from tests.training.saved_checkpoints import save_checkpoint


def changed(item, **fields):
    return dataclasses.replace(item, **fields)


def on_policy(learner, items, temperature=1.0):
    """The samples as if the learner itself had drawn them."""
    result = []
    for item in items:
        batch = single_batch([item], learner._models.model_adapter)
        with torch.no_grad():
            found = learner._policy.module(batch, temperature).logprobs
        result.append(with_logprobs(item, found.tolist()))
    return result


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


def test_log_probabilities_are_those_of_the_plain_model(
    make_learner, config, tiny_vlm, model_adapter
):
    item = sample(model_adapter, 0)
    batch = single_batch([item], model_adapter)
    model = load_model(tiny_vlm)
    with torch.no_grad():
        logits = model(
            **model_adapter.forward_inputs(
                batch.token_ids, torch.ones_like(batch.token_ids, dtype=torch.bool), item.images
            )
        ).logits[0, :-1]
    logits = logits / 0.7
    logits[:, list(model_adapter.banned_token_ids)] = -math.inf
    places = torch.tensor(item.sampled_positions)
    table = F.log_softmax(logits, -1)[places - 1]
    targets = batch.token_ids[0, places]
    scores = make_learner(config)._policy.module(batch, 0.7)
    torch.testing.assert_close(
        scores.logprobs.detach(), table.gather(-1, targets[:, None])[:, 0], rtol=1e-4, atol=1e-5
    )
    entropy = torch.distributions.Categorical(probs=table.exp()).entropy()
    torch.testing.assert_close(scores.entropy, entropy, rtol=1e-4, atol=1e-4)


def test_chunked_log_probabilities_are_the_same_with_the_same_gradient(
    make_learner, config, model_adapter, monkeypatch
):
    scorer = make_learner(config)._policy.module
    batch = single_batch([sample(model_adapter, 0), sample(model_adapter, 1)], model_adapter)

    def run():
        scores = scorer(batch, 1.0)
        scores.logprobs.sum().backward()
        gradient = [p.grad.full_tensor() for p in scorer.parameters()]
        scorer.zero_grad()
        return scores.logprobs.detach(), gradient

    plain = run()
    monkeypatch.setattr(
        "agentrl.training.learner.network.logprob_model._CHUNK", 5 * len(scorer.banned)
    )
    torch.testing.assert_close(run(), plain)


def test_an_update_makes_rewarded_tokens_more_probable(make_learner, config, model_adapter):
    learner = make_learner(config)
    good, bad = on_policy(
        learner, [sample(model_adapter, 0, advantage=1.0), sample(model_adapter, 1, advantage=-1.0)]
    )
    before = [sum(s.logprobs) for s in (good, bad)]
    for _ in range(3):
        metrics = learner.update([good, bad])
    after = [sum(s.logprobs) for s in on_policy(learner, [good, bad])]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert metrics["version"] == 3
    assert metrics["tokens"] == 12


def test_a_learner_that_equals_the_engine_reports_no_mismatch(make_learner, config, model_adapter):
    config.rollout.temperature = 0.8
    learner = make_learner(config)
    items = on_policy(learner, [sample(model_adapter, k) for k in range(4)], 0.8)
    metrics = learner.update(items)
    assert metrics["mismatch_max"] < 1e-4
    assert abs(metrics["mismatch_k1"]) < 1e-5
    assert metrics["clip_share"] == 0
    # with ratios of 1 the loss is minus the mean advantage of the tokens
    mean = sum(sum(s.advantages) for s in items) / metrics["tokens"]
    assert metrics["loss"] == pytest.approx(-mean, abs=1e-5)


def test_a_shifted_engine_is_reported_as_mismatch(make_learner, config, model_adapter):
    learner = make_learner(config)
    [item] = on_policy(learner, [sample(model_adapter, 0)])
    off = with_logprobs(item, [p - 0.1 for p in item.logprobs])
    metrics = learner.update([off])
    assert metrics["mismatch_k1"] == pytest.approx(-0.1, abs=1e-4)
    assert metrics["mismatch_k3"] == pytest.approx(math.exp(0.1) - 1.1, abs=1e-4)
    assert metrics["mismatch_max"] == pytest.approx(0.1, abs=1e-4)


def test_log_ratios_of_a_reply_are_bounded_after_their_mean_and_their_sum(
    make_learner, config, model_adapter
):
    """One extreme token must count as much as it is, not as 20: else both would be below 1."""
    kind = "algorithm.importance_correction.kind=sequence_truncate"
    learner = make_learner(configuration.resolve(config, ["algorithm.name=gspo", kind]))
    [item] = on_policy(learner, [sample(model_adapter, 0, reply=12, advantage=1.0)])
    ratios = (60.0, *[-2.4] * 11)
    old = [p - r for p, r in zip(item.logprobs, ratios, strict=True)]
    engine = [p - r for p, r in zip(old, ratios, strict=True)]
    metrics = learner.update([changed(item, logprobs=tuple(engine), old_logprobs=tuple(old))])
    assert metrics["correction"] == pytest.approx(2.0)
    assert metrics["loss"] == pytest.approx(-2.0 * (1 + 4e-4), rel=1e-5)
    assert metrics["clip_share"] == 1.0


def test_an_adapted_entropy_coefficient_replaces_the_configured_one(
    make_learner, config, model_adapter
):
    items = [sample(model_adapter, k) for k in range(2)]
    fixed = configuration.resolve(config, ["algorithm.entropy_coefficient=0.3"])
    adapted = configuration.resolve(config, ["algorithm.entropy_control.target=9"])
    expected = make_learner(fixed).update(items)
    found = make_learner(adapted).update(items, entropy_coefficient=0.3)
    without = make_learner(adapted).update(items, entropy_coefficient=0.0)
    for name in ("loss", "grad_norm", "entropy", "entropy_coefficient"):
        assert found[name] == pytest.approx(expected[name])
    assert without["entropy_coefficient"] == 0.0
    bonus = without["loss"] - found["loss"]  # the same weights and tokens
    assert bonus == pytest.approx(0.3 * found["entropy"], rel=1e-3)


def test_mismatch_is_reported_if_all_advantages_are_zero(make_learner, config, model_adapter):
    learner = make_learner(config)
    before = learner.weights()
    metrics = learner.update([sample(model_adapter, k, advantage=0.0) for k in range(3)])
    assert metrics["mismatch_tokens"] == 18
    assert metrics["mismatch_max"] > abs(metrics["mismatch_k1"]) > 0
    assert metrics["optimizer_steps"] == metrics["tokens_computed"] == 0
    assert 0 < metrics["entropy"] < math.log(1000)  # of a vocabulary of some hundreds
    # and what looked at the engine left the model free to be read and replaced
    learner.load_weights(publish(learner, 1))
    assert same(before, learner.weights())
    assert "mismatch_max" not in learner.update([])


def test_mismatch_samples_the_whole_step_within_a_bound(
    make_learner, config, model_adapter, monkeypatch
):
    items = [sample(model_adapter, k, advantage=float(k == 0)) for k in range(9)]
    learner = make_learner(config)
    assert learner.update(items, step=1)["mismatch_tokens"] == 54
    monkeypatch.setattr(learner_metrics, "MAX_COMPARED_SAMPLES", 4)
    found = [learner.update(items, step=step) for step in (1, 2)]
    assert [metrics["mismatch_tokens"] for metrics in found] == [24, 24]
    monkeypatch.setattr(learner_metrics, "MAX_COMPARED_TOKENS", 1)
    assert learner.update(items)["mismatch_tokens"] == 6


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
def test_splitting_into_micro_batches_changes_neither_loss_nor_gradient_nor_mismatch(
    make_learner, config, model_adapter, monkeypatch, aggregate
):
    monkeypatch.setattr(learner_metrics, "MAX_COMPARED_SAMPLES", 5)
    config.algorithm.aggregate = aggregate
    items = [sample(model_adapter, k, reply=3 + k, pictures=k % 3) for k in range(7)]
    steps, mismatches = [], []
    for budget in (1, 90, 100_000):
        config.train.micro_batch_tokens = budget
        metrics = make_learner(config).update(items)
        steps.append([metrics[k] for k in ("loss", "grad_norm", "entropy", "approx_kl")])
        mismatches.append([metrics[f"mismatch_{k}"] for k in ("k1", "k3", "max", "tokens")])
    for index in (0, 1):
        assert steps[index] == pytest.approx(steps[2], rel=1e-4)
        assert mismatches[index] == pytest.approx(mismatches[2], rel=1e-4, abs=1e-6)


def test_an_image_shared_by_siblings_is_encoded_once_with_the_same_gradient(
    make_learner, config, model_adapter
):
    # the same screens, answered differently
    items = [
        changed(item, token_ids=(*item.token_ids[:-1], 40 + k))
        for k, item in enumerate(
            [sample(model_adapter, 0, pictures=2), sample(model_adapter, 1)] * 2
        )
    ]
    batch = single_batch(items, model_adapter)
    assert batch.pixels["image_index"].tolist() == [0, 1, 0, 1, 2, 2]
    assert len(batch.pixels["image_grid_thw"]) == 3
    together = make_learner(config).update(items)
    config.train.micro_batch_tokens = 1
    apart = make_learner(config).update(items)
    for name in ("loss", "grad_norm", "entropy"):
        assert together[name] == pytest.approx(apart[name], rel=1e-4)


def test_the_last_token_of_a_reply_is_a_target_but_not_an_input(
    make_learner, config, model_adapter
):
    items = [sample(model_adapter, k, reply=3 + k % 2, pictures=k % 2) for k in range(4)]
    items.append(changed(items[0], token_ids=(*items[0].token_ids[:-1], 40)))  # alike but for it
    learner, whole_samples = make_learner(config), make_learner(config)
    packing = changed(learner._batcher.packing, read_last_tokens=True)
    whole_samples._batcher = changed(learner._batcher, packing=packing)
    read = []
    for one in (learner, whole_samples):
        parts = pack_micro_batches(items, one._batcher.packing, model_adapter.image_token_id)
        read.append(sum(tree.length for rows in parts for row in rows for tree in row))
    assert read == [read[1] - len(items), read[1]]
    apart, together = learner.update(items), whole_samples.update(items)
    for name in ("loss", "grad_norm", "entropy", "approx_kl"):
        assert apart[name] == pytest.approx(together[name], rel=1e-4)


def test_samples_without_advantage_are_skipped_with_the_same_gradient(
    make_learner, config, model_adapter
):
    items = [sample(model_adapter, 0, advantage=1.0), sample(model_adapter, 1, advantage=0.0)]
    learner = make_learner(config)
    metrics = learner.update(items)
    assert metrics["tokens"] == 12
    assert metrics["tokens_computed"] == 6
    idle = make_learner(config)
    before = idle.weights()
    metrics = idle.update(items[1:])
    assert metrics["optimizer_steps"] == 0
    assert same(idle.weights(), before)
    assert idle.update([])["optimizer_steps"] == 0


class Pull(PolicyLoss):
    """Has a gradient at every token, whatever its advantage."""

    about, source, formula = "moves all log-probabilities", "none", "logp"
    all_tokens = True

    def __call__(self, inputs):
        return TokenLoss(loss=inputs.logprobs, clipped=inputs.logprobs > 1)


def test_samples_without_advantage_are_computed_if_the_loss_takes_all_tokens(
    make_learner, config, model_adapter
):
    name = f"{Pull.__module__}:{Pull.__qualname__}"
    config = configuration.resolve(config, ["algorithm.name=grpo", f"algorithm.loss={name}"])
    learner = make_learner(config)
    metrics = learner.update([sample(model_adapter, 1, advantage=0.0)])
    assert (metrics["tokens_computed"], metrics["optimizer_steps"]) == (6, 1)
    assert metrics["grad_norm"] > 0


def test_epochs_and_minibatches_are_optimizer_steps(make_learner, config, model_adapter):
    config.algorithm.epochs, config.algorithm.minibatch = 2, 3
    items = [sample(model_adapter, k) for k in range(7)]
    first, second = make_learner(config), make_learner(config)
    metrics = first.update(items, step=5)
    assert metrics["optimizer_steps"] == 6
    assert metrics["tokens_computed"] == metrics["tokens"]
    second.update(items, step=5)
    assert same(first.weights(), second.weights())


def test_kl_to_the_reference_restrains_the_policy(make_learner, config, model_adapter, tmp_path):
    config.algorithm.kl.add_to, config.algorithm.kl.coefficient = "loss", 10.0
    config.algorithm.epochs = 3
    learner = make_learner(config)
    items = on_policy(learner, [sample(model_adapter, k) for k in range(2)])
    items = with_scores(learner, items)
    metrics = learner.update(items)
    assert metrics["kl"] > 0
    assert metrics["kl_coefficient"] == 10
    assert learner.update(items, kl_coefficient=2.5)["kl_coefficient"] == 2.5
    learner.save_state(tmp_path / "state")
    restored = make_learner(config)
    restored.restore(tmp_path / "state")
    again = with_scores(restored, items)
    assert again == with_scores(learner, items)
    assert restored.update(again)["kl"] == learner.update(items)["kl"] > 0


def test_a_reference_exists_from_the_start_and_copies_the_policy_after_a_warm_start(
    make_learner, config, model_adapter, tmp_path
):
    config.algorithm.kl.add_to, config.algorithm.kl.coefficient = "loss", 1.0
    learner = make_learner(config)
    models = learner._models
    assert models.reference is not None
    learner.save_state(tmp_path / "before")
    assert not any(name.startswith("reference/") for name in models.state_tensors())
    items = [sample(model_adapter, k) for k in range(2)]
    learner.begin_offline(WarmStartConfig())
    learner.offline_step(items, 1e-2)
    learner.end_offline()
    learner.score_tokens(items)
    policy = models.policy.weights()
    assert same(models.reference.weights(), policy)
    learner.restore(tmp_path / "before")
    assert not same(models.policy.weights(), policy)
    learner.score_tokens(items)  # copies the restored policy
    assert same(models.reference.weights(), models.policy.weights())


def test_a_step_that_is_not_finite_is_skipped_and_five_in_a_row_end_the_run(
    make_learner, config, model_adapter, caplog
):
    learner = make_learner(config)
    broken = sample(model_adapter, 0, advantage=math.inf)
    before = learner.weights()
    for _ in range(MAX_SKIPS - 1):
        assert learner.update([broken])["skipped"] == 1
    assert same(learner.weights(), before)
    with pytest.raises(LearnerError, match="5 consecutive optimizer steps"):
        learner.update([broken])
    learner = make_learner(config)
    assert learner.update([sample(model_adapter, 0)])["skipped"] == 0


@pytest.mark.parametrize("algorithm", ["ppo", "turn_ppo", "pf_ppo", "prime"])
def test_finite_steps_of_another_model_do_not_hide_that_the_policy_diverges(
    make_learner, config, model_adapter, algorithm
):
    """A finite step of the critic or the reward model comes before each of the policy's."""
    learner = make_learner(configuration.resolve(config, [f"algorithm.name={algorithm}"]))
    zeros = (0.0,) * 6
    item = changed(sample(model_adapter, 0), values=zeros, returns=zeros, bce_gradient=0.1)
    broken = changed(item, advantages=(math.inf,) * 6)
    for _ in range(MAX_SKIPS - 1):
        assert learner.update([broken])["skipped"] == 1
    with pytest.raises(LearnerError, match=r"5 consecutive optimizer steps\. Lower optim\.lr"):
        learner.update([broken])


@pytest.mark.parametrize(
    ("algorithm", "fields", "setting"),
    [
        ("ppo", {"returns": (math.inf,) * 6}, r"algorithm\.critic\.lr"),
        ("prime", {"bce_gradient": math.inf}, r"algorithm\.implicit_reward\.lr"),
    ],
)
def test_skipped_steps_of_the_other_models_are_counted_too(
    make_learner, config, model_adapter, algorithm, fields, setting
):
    learner = make_learner(configuration.resolve(config, [f"algorithm.name={algorithm}"]))
    zeros = (0.0,) * 6
    item = changed(sample(model_adapter, 0), values=zeros, returns=zeros, bce_gradient=0.1)
    for _ in range(MAX_SKIPS - 1):
        metrics = learner.update([changed(item, **fields)])
        assert (metrics["skipped"], metrics["optimizer_steps"]) == (1, 1)
        assert all(map(math.isfinite, (v for n, v in metrics.items() if n != "value_error")))
    with pytest.raises(LearnerError, match=f"Lower {setting}"):
        learner.update([changed(item, **fields)])


def test_a_skipped_step_does_not_advance_the_learning_rate(
    make_learner, config, model_adapter, tmp_path
):
    config.optim.lr_warmup_steps, config.optim.lr_final_ratio, config.train.steps = 2, 0.0, 5
    learner = make_learner(config)
    item = sample(model_adapter, 0)
    rates = []
    for k in range(3):
        learner.update([changed(item, advantages=(math.inf,) * 6)])
        if k == 1:  # the count of skipped updates is part of the state
            learner.save_state(tmp_path / "state")
            learner = make_learner(config)
            learner.restore(tmp_path / "state")
        rates.append(learner.update([item])["lr"] / config.optim.lr)
    assert rates == pytest.approx([0.5, 0.75, 0.5])


def test_supervised_steps_learn_the_replies(make_learner, config, model_adapter):
    learner = make_learner(config)
    items = [sample(model_adapter, k, reply=3) for k in range(4)]
    learner.begin_offline(WarmStartConfig())
    first = learner.offline_step(items, 1e-2)
    assert first["lr"] == 1e-2
    for _ in range(60):
        last = learner.offline_step(items, 1e-2)
    assert last["token_accuracy"] == 1.0
    assert last["loss"] < 0.1 < first["loss"]
    assert last["tokens"] == 12
    learner.end_offline()


def test_resuming_is_bit_equal_to_never_stopping(make_learner, config, model_adapter, tmp_path):
    config.algorithm.epochs, config.algorithm.minibatch = 2, 3
    config.optim.lr_warmup_steps = 5
    items = [sample(model_adapter, k) for k in range(6)]
    learner = make_learner(config)
    for _ in range(2):
        learner.update(items)
    learner.save_state(tmp_path / "state")
    resumed = make_learner(config)
    resumed.restore(tmp_path / "state")
    for _ in range(2):
        expected, found = learner.update(items), resumed.update(items)
        del expected["seconds"], found["seconds"]
        assert expected == found
    assert same(learner.weights(), resumed.weights())


def test_supervised_training_resumes_from_a_state_too(
    make_learner, config, model_adapter, tmp_path
):
    items = [sample(model_adapter, k) for k in range(3)]
    learner, resumed = make_learner(config), make_learner(config)
    learner.begin_offline(WarmStartConfig())
    learner.offline_step(items, 1e-3)
    learner.save_state(tmp_path / "state")
    with pytest.raises(ConfigError, match="call begin_offline first"):
        resumed.restore(tmp_path / "state")
    resumed.begin_offline(WarmStartConfig())
    resumed.restore(tmp_path / "state")
    assert learner.offline_step(items, 1e-3)["loss"] == resumed.offline_step(items, 1e-3)["loss"]
    assert same(learner.weights(), resumed.weights())


def test_a_state_of_another_job_and_a_broken_one_are_refused(make_learner, config, tmp_path):
    learner, state = make_learner(config), tmp_path / "state"
    learner.save_state(state)
    plain = json.loads((state / "plain.json").read_text())
    (state / "plain.json.xxh3").unlink()
    for changed, said in (
        (
            {"job": plain["job"] | {"model.path": "elsewhere"}},
            r"saved with model\.path='elsewhere'",
        ),
        ({"steps": {}}, "is incomplete: KeyError"),
        ({"version": None, "job": None}, "is incomplete: TypeError"),
        ({"version": "two"}, "'two' is not a non-negative integer"),
        ({"skipped_updates": -1}, "-1 is not a non-negative integer.*Remove it"),
        ({"steps": {"policy": dict.fromkeys(plain["steps"]["policy"], 1.5)}}, "1.5 is not a non"),
    ):
        (state / "plain.json").write_text(json.dumps(plain | changed))
        with pytest.raises(ConfigError, match=said):
            learner.restore(state)
    (state / "plain.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        learner.restore(state)
    with pytest.raises(ConfigError, match="cannot be read"):
        learner.restore(tmp_path / "nowhere")


def test_a_state_does_not_depend_on_how_adapters_are_served(make_learner, config, tmp_path):
    make_learner(config).save_state(tmp_path / "state")
    config.model.lora.serve = "adapter"
    make_learner(config).restore(tmp_path / "state")


def test_a_reference_that_starts_with_a_resumed_run_is_logged(
    make_learner, config, model_adapter, tmp_path, caplog
):
    learner = make_learner(config)
    learner.save_state(tmp_path / "before")
    learner.update([sample(model_adapter, 0)])
    learner.save_state(tmp_path / "after")
    config.algorithm.kl.add_to = "loss"
    make_learner(config).restore(tmp_path / "before")
    assert "current model" not in caplog.text
    make_learner(config).restore(tmp_path / "after")
    assert "measured against the current model" in caplog.text


@pytest.mark.parametrize("file", [".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04half", None])
def test_a_truncated_state_is_refused_and_nothing_is_changed(
    make_learner, config, tmp_path, file, content
):
    learner, state = make_learner(config), tmp_path / "state"
    learner.save_state(state)
    sharded_checkpoint.check_files(state)
    (state / file).unlink() if content is None else (state / file).write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot be read.*Remove this checkpoint"):
        make_learner(config).restore(state)
    with pytest.raises(ConfigError, match=r"cannot be read.*Remove this checkpoint"):
        sharded_checkpoint.check_files(state)
    with pytest.raises(ConfigError, match="cannot be read"):
        sharded_checkpoint.read(state, "policy/")


@pytest.mark.parametrize("file", [".metadata", "__0_0.distcp", "plain.json"])
def test_a_single_flipped_bit_of_a_state_is_noticed(make_learner, config, tmp_path, file):
    learner, state = make_learner(config), tmp_path / "state"
    learner.save_state(state)
    content = (state / file).read_bytes()
    digest, name = (state / f"{file}.xxh3").read_text().split()
    assert (digest, name) == (xxhash.xxh3_128_hexdigest(content), file)
    for at in (0, len(content) // 3, len(content) * 2 // 3, len(content) - 1):
        damaged = bytearray(content)
        damaged[at] ^= 4
        (state / file).write_bytes(damaged)
        wrong = rf"state: .*{file} is damaged: its checksum does not match\. Remove this checkpoint"
        with pytest.raises(ConfigError, match=wrong):
            learner.restore(state)
    if file != "plain.json":
        with pytest.raises(ConfigError, match=f"{file} is damaged"):
            sharded_checkpoint.read(state, "policy/")
    (state / file).write_bytes(content)
    learner.restore(state)


def test_loading_a_checkpoint_runs_no_code(make_learner, config, tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    learner, state = make_learner(config), tmp_path / "state"
    learner.save_state(state)
    (state / ".metadata").write_bytes(pickle.dumps(Harm()))
    (state / ".metadata.xxh3").unlink()
    for read in (learner.restore, lambda folder: sharded_checkpoint.read(folder, "policy/")):
        with pytest.raises(ConfigError, match="mkdir is not allowed in a checkpoint"):
            read(state)
    assert not (tmp_path / "harm").exists()


def test_only_members_of_enums_are_looked_up_in_a_checkpoint(make_learner, config, tmp_path):
    class Looks:  # as enums are pickled before Python 3.11.4, but at what is not one
        def __reduce__(self):
            return getattr, (torch.Size, "__subclasses__")

    learner, state = make_learner(config), tmp_path / "state"
    learner.save_state(state)
    (state / ".metadata").write_bytes(pickle.dumps(Looks()))
    (state / ".metadata.xxh3").unlink()
    with pytest.raises(ConfigError, match="'__subclasses__' is not a member of an enum"):
        learner.restore(state)


def test_a_full_disk_keeps_earlier_checkpoints(make_learner, config, model_adapter, tmp_path):
    learner = make_learner(config)
    whole = save_checkpoint(tmp_path, 1, learner, {"step": 1}, keep=1)
    before = learner.weights()
    learner.update([sample(model_adapter, 0)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="cannot be written"):
            save_checkpoint(tmp_path, 2, learner, {"step": 2}, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint_store.latest(tmp_path) == whole
    checkpoint_store.load(whole, learner)
    assert same(learner.weights(), before)
    assert save_checkpoint(tmp_path, 2, learner, {"step": 2}, keep=1).is_dir()


def test_a_checkpoint_is_exported_as_an_ordinary_model(
    make_learner, config, model_adapter, tmp_path, capsys
):
    run, learner = tmp_path / "run", make_learner(config)
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    shutil.copytree(learner._models._folder, run / "start")
    for step in (1, 2):
        learner.update([sample(model_adapter, step)])
        save_checkpoint(run, step, learner, {"step": step}, keep=2, best=step == 1)
    assert cli.run(["merge", str(run), str(tmp_path / "last")]) == 0
    assert "the model after step 2" in capsys.readouterr().out
    loaded = load_model(tmp_path / "last").state_dict()
    for name, tensor in learner.weights().items():
        assert torch.equal(loaded[name], tensor), name
    best_one = ["--checkpoint", "best", "--dtype", "bfloat16"]
    assert cli.run(["merge", str(run), str(tmp_path / "best"), *best_one]) == 0
    assert "the model after step 1" in capsys.readouterr().out
    best = load_file(tmp_path / "best" / "model.safetensors")
    assert {tensor.dtype for tensor in best.values()} == {torch.bfloat16}
    for arguments, said in (
        (["last"], "already exists; choose a new folder"),
        (["other", "--checkpoint", "7"], "no checkpoint '7'"),
        (["other", "--dtype", "int8"], "must be float32 or bfloat16"),
    ):
        assert cli.run(["merge", str(run), str(tmp_path / arguments[0]), *arguments[1:]]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (1, "policy/model.language_model.layers.1.self_attn.q_proj.weight is missing"),
        (3, "belongs to a different model: policy/model.language_model.layers.2."),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_all_readers(
    make_learner, config, tmp_path, tiny_vlm, capsys, layers, said
):
    config.rollout.engine, config.rollout.launcher = "hf", "local"
    run, played = tmp_path / "run", tmp_path / "played"
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    (run / "start").symlink_to(tiny_vlm)
    sizes = {"hidden": 32, "heads": 1, "kv_heads": 1, "intermediate": 64}
    vision = {"vision_hidden": 32, "vision_depth": 1, "vision_heads": 2, "vision_intermediate": 64}
    other = Learner(
        LearnerSettings.of(config),
        tiny_model.build(tmp_path / "other", 0, layers=layers, **sizes, **vision),
    )
    folder = save_checkpoint(run, 1, other, {"step": 1}, keep=1)
    other.close()
    with pytest.raises(ConfigError, match="belongs to a different model") as refused:
        checkpoint_store.load(folder, make_learner(config))
    assert said in str(refused.value)
    for arguments in (
        ["merge", str(run), str(tmp_path / "new" / "out")],
        ["eval", str(run), "--checkpoint", "last", "--episodes", "1", f"run.dir={played}"],
        ["play", str(run), "--checkpoint", "last", "--policy", "model", f"run.dir={played}"],
    ):
        assert cli.run(arguments) == 2
        assert str(refused.value) in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert not played.exists()


@pytest.mark.parametrize("told_apart", [False, True])
def test_a_checkpoint_with_tied_weights_is_exported(config, tmp_path, tiny_vlm, told_apart):
    run = tmp_path / "run"
    start = shutil.copytree(tiny_vlm, run / "start")
    if not told_apart:
        families.tie(start)
    else:
        about = json.loads((start / "config.json").read_text())
        about["tie_word_embeddings"] = about["text_config"]["tie_word_embeddings"] = True
        (start / "config.json").write_text(json.dumps(about))
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    learner = Learner(LearnerSettings.of(config), start)
    assert ("lm_head.weight" in learner.weights()) is told_apart
    save_checkpoint(run, 1, learner, {"step": 1}, keep=1)
    assert cli.run(["merge", str(run), str(tmp_path / "out")]) == 0
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == learner.weights().keys()
    learner.close()


def test_a_truncated_checkpoint_is_not_exported(make_learner, config, tmp_path, capsys):
    run, learner = tmp_path / "run", make_learner(config)
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    (run / "start").symlink_to(learner._models._folder)
    folder = save_checkpoint(run, 1, learner, {"step": 1}, keep=1)
    (folder / "learner" / "plain.json").write_text("{}")
    (folder / "learner" / "plain.json.xxh3").unlink()
    assert cli.run(["merge", str(run), str(tmp_path / "out")]) == 2
    assert "is incomplete: KeyError('job')" in capsys.readouterr().err


def test_bfloat16_master_weights_take_less_memory_and_learn(make_learner, config, model_adapter):
    items = [sample(model_adapter, 1)]
    exact = make_learner(config)
    settings = ["model.dtype=bfloat16", "train.master_dtype=bfloat16", "optim.moments=bfloat16"]
    small = make_learner(configuration.resolve(config, settings))
    found = [learner.update(items, 0) for learner in (exact, small)]
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], abs=0.02)
    assert found[1]["grad_norm"] == pytest.approx(found[0]["grad_norm"], rel=0.1)
    rooms = [
        sum(t.numel() * t.itemsize for t in learner._models.state_tensors().values())
        for learner in (exact, small)
    ]
    # 2 bytes each for a weight, its remainder and two moments; 4 for a weight and two moments.
    assert rooms[1] == pytest.approx(rooms[0] * 8 / 12, rel=0.01)
    before = small.weights()
    small.update(items, 1)
    assert not same(before, small.weights())


def test_frozen_weights_are_kept_in_the_compute_dtype(make_learner, config):
    settings = ["model.dtype=bfloat16", "model.freeze_vision=true"]
    learner = make_learner(configuration.resolve(config, settings))
    types = {
        n.startswith("model.visual."): t.dtype for n, t in learner._policy.state_tensors().items()
    }
    assert types == {True: torch.bfloat16, False: torch.float32}


def test_weights_of_another_size_are_refused(make_learner, config, tmp_path):
    make_learner(config).save_state(tmp_path / "state")
    other = Learner(LearnerSettings.of(config), tiny_model.build(tmp_path / "model", 0))
    try:
        with pytest.raises(ConfigError, match="belongs to a different model"):
            other.restore(tmp_path / "state")
    finally:
        other.close()


def test_the_exported_folder_is_an_ordinary_model(
    make_learner, config, model_adapter, tmp_path, tiny_vlm
):
    learner = make_learner(config)
    learner.update([sample(model_adapter, 0)])
    for _ in range(2):
        learner.export(tmp_path / "out")
    names = {p.name for p in tiny_vlm.iterdir()} | {"agentrl.json"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == names
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    own = learner.weights()
    assert same(own, load_model(tmp_path / "out").state_dict())
    fresh = make_learner(config)
    fresh.load_weights(tmp_path / "out" / "model.safetensors")
    assert same(own, fresh.weights())
    with pytest.raises(ConfigError, match="cannot be read as weights"):
        fresh.load_weights(tmp_path / "nothing.safetensors")


def test_published_weights_replace_older_ones(make_learner, config):
    learner = make_learner(config)
    first = publish(learner, 1)
    second = publish(learner, 2)
    assert not first.exists()
    assert same(learner.weights(), load_file(second))


def test_a_frozen_vision_tower_stays_as_it_was(make_learner, config, model_adapter):
    config.model.freeze_vision = True
    learner = make_learner(config)
    before = learner.weights()
    learner.update([sample(model_adapter, k) for k in range(2)])
    after = learner.weights()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not any("visual" in name for name in moved)


def test_gradient_checkpointing_changes_no_gradient(make_learner, config, model_adapter):
    items = [sample(model_adapter, k) for k in range(2)]
    plain = make_learner(config).update(items)
    config.train.gradient_checkpointing = True
    saved = make_learner(config).update(items)
    assert saved["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)


def test_a_frozen_vision_tower_only_runs_forward_with_gradient_checkpointing(
    make_learner, config, model_adapter
):
    config.train.gradient_checkpointing = config.model.freeze_vision = True
    module = make_learner(config)._policy.module
    seen = []
    module.policy.base_model.visual.register_forward_hook(lambda *call: seen.append(call[2]))
    module(single_batch([sample(model_adapter, 0)], model_adapter), 1.0).logprobs.sum().backward()
    (output,) = seen
    assert not output.last_hidden_state.requires_grad


def test_bfloat16_computes_in_half_the_bits_over_full_masters(
    make_learner, config, model_adapter, tmp_path
):
    items = [sample(model_adapter, k) for k in range(2)]
    plain = make_learner(config).update(items)
    config.model.dtype = "bfloat16"
    learner = make_learner(config)
    half = learner.update(items)
    assert half["grad_norm"] == pytest.approx(plain["grad_norm"], rel=0.1)
    assert {t.dtype for t in learner.weights().values()} == {torch.bfloat16}
    learner.save_state(tmp_path / "state")
    assert {t.dtype for t in sharded_checkpoint.read(tmp_path / "state", "policy/").values()} == {
        torch.float32
    }

"""LoRA: adapters match PEFT's, and engines receive merged weights."""

import json

import pytest
import torch
from safetensors.torch import load_file

from agentrl import cli
from agentrl import config as configuration
from agentrl.config import LoraConfig, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.policies.models import adapter_for, load_model, load_on_meta
from agentrl.training.learner import four_bit_weights, lora_adapters
from tests.training.samples import sample, with_scores
from tests.training.saved_checkpoints import save_checkpoint

DRY_RUN = ["train", "counting", "--dry-run", "warm_start.episodes=1"]


@pytest.fixture(params=["float", "nf4"])
def lora(request, config):
    config.model.lora = LoraConfig(rank=4, alpha=8, base=request.param)
    return config


def begun(tiny_vlm, config):
    """The weights of the folder, as the learner begins with them."""
    found = load_model(tiny_vlm).state_dict()
    if config.model.lora.base == "nf4":
        for name in lora_adapters.target_layers(
            load_on_meta(tiny_vlm), adapter_for(tiny_vlm), config.model.lora
        ):
            found[f"{name}.weight"] = four_bit_weights.quantize_roundtrip(found[f"{name}.weight"])
    return found


def moved(start, learner):
    """The names of the weights that are not what they began as."""
    return {n for n, t in learner.weights().items() if not torch.equal(t, start[n])}


def test_only_adapters_are_trained_and_they_start_as_a_no_op(
    make_learner, lora, model_adapter, tiny_vlm
):
    start = begun(tiny_vlm, lora)
    learner = make_learner(lora)
    assert not moved(start, learner)
    metrics = learner.update([sample(model_adapter, i) for i in range(2)])
    assert metrics["grad_norm"] > 0
    targets = lora_adapters.target_layers(
        load_on_meta(tiny_vlm), adapter_for(tiny_vlm), lora.model.lora
    )
    assert moved(start, learner) == {f"{name}.weight" for name in targets}
    assert all(name.startswith("model.language_model.layers.") for name in targets)
    assert {name.rpartition(".")[2] for name in targets} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    held = sum(t.numel() for t in learner._models.optimizer.state_tensors().values())
    whole = sum(t.numel() for t in start.values())
    assert held < whole / 2  # two moments of each adapter, and of nothing else


def test_published_weights_are_the_merged_model(make_learner, lora, model_adapter, tmp_path):
    learner, item = make_learner(lora), sample(model_adapter, 1)
    for _ in range(3):
        learner.update([item])
    learner.export(tmp_path / "merged")
    plain = make_learner(configuration.resolve(lora, ["model.lora.rank=0"]))
    plain.load_weights(tmp_path / "merged" / "model.safetensors")
    torch.testing.assert_close(
        torch.tensor(plain._logprobs(plain._policy, [item])[0]),
        torch.tensor(learner._logprobs(learner._policy, [item])[0]),
    )


def test_four_bit_weights_are_close_and_take_less_memory(make_learner, config, tiny_vlm):
    config.model.lora = LoraConfig(rank=4, base="nf4")
    learner = make_learner(config)
    plain = load_model(tiny_vlm).state_dict()
    targets = lora_adapters.target_layers(
        load_on_meta(tiny_vlm), adapter_for(tiny_vlm), config.model.lora
    )
    for name in targets:
        exact, found = plain[f"{name}.weight"], learner.weights()[f"{name}.weight"]
        error = (exact - found).norm() / exact.norm()
        assert 0 < error < 0.5, name
    kept = learner._models.policy.state_tensors()
    four = sum(
        t.numel() * t.itemsize for n, t in kept.items() if n.rpartition(".base_layer.weight")[1]
    )
    full = sum(plain[f"{name}.weight"].numel() * 4 for name in targets)
    assert four < full * 0.15


def test_loaded_weights_replace_the_base_and_reset_the_adapters(
    make_learner, lora, model_adapter, tmp_path
):
    learner, item = make_learner(lora), sample(model_adapter, 1)
    learner.update([item])
    learner.save_weights(tmp_path / "weights.safetensors")
    other = make_learner(lora)
    other.load_weights(tmp_path / "weights.safetensors")
    expected = learner.weights()
    if lora.model.lora.base == "nf4":
        for name in lora_adapters.target_layers(
            load_on_meta(learner._models._folder), learner._models.model_adapter, lora.model.lora
        ):
            expected[f"{name}.weight"] = four_bit_weights.quantize_roundtrip(
                expected[f"{name}.weight"]
            )
    for name, tensor in other.weights().items():
        torch.testing.assert_close(tensor, expected[name], msg=name)
    assert other.update([item])["grad_norm"] > 0


@pytest.mark.parametrize("algorithm", ["ppo", "prime"])
def test_critic_and_reward_model_have_adapters_too(make_learner, lora, model_adapter, algorithm):
    config = configuration.resolve(lora, [f"algorithm.name={algorithm}"])
    learner = make_learner(config)
    items = [sample(model_adapter, 1)]
    learner.score_tokens(items)
    held = {
        n
        for n in learner._models.state_tensors()
        if n.startswith(("critic/model", "implicit/model"))
    }
    assert any(".lora_A." in name for name in held)


def test_an_implicit_reward_model_starts_as_the_policy_with_its_adapters(
    make_learner, lora, model_adapter
):
    learner = make_learner(configuration.resolve(lora, ["algorithm.name=prime"]))
    items = [sample(model_adapter, 1)]
    learner.begin_offline(WarmStartConfig())
    for _ in range(3):
        learner.offline_step(items, 1e-2)
    learner.end_offline()
    (scores,) = learner.score_tokens(items)
    assert scores.implicit_logprobs == learner._logprobs(learner._policy, items)[0]
    assert scores.implicit_logprobs == pytest.approx(scores.reference_logprobs, abs=1e-4)


def test_a_reference_model_is_the_policy_before_training(make_learner, lora, model_adapter):
    config = configuration.resolve(
        lora, ["algorithm.kl.add_to=loss", "algorithm.kl.coefficient=0.1"]
    )
    learner = make_learner(config)
    [item] = with_scores(learner, [sample(model_adapter, 1)])
    assert learner.update([item])["kl"] == pytest.approx(0, abs=1e-6)
    assert learner.update([item])["kl"] > 1e-6
    assert not any(".lora_" in name for name in learner._models.reference.state_tensors())


@pytest.mark.quick("float")
def test_resuming_with_adapters_is_bit_equal(make_learner, lora, model_adapter, tmp_path):
    items = [sample(model_adapter, i) for i in range(2)]
    straight = make_learner(lora)
    for step in range(4):
        if step == 2:
            straight.save_state(tmp_path / "state")
        straight.update(items, step)
    resumed = make_learner(configuration.resolve(lora, ["model.lora.serve=adapter"]))
    resumed.restore(tmp_path / "state")
    for step in (2, 3):
        resumed.update(items, step)
    for name, tensor in straight._models.state_tensors().items():
        assert torch.equal(tensor, resumed._models.state_tensors()[name]), name
    other = make_learner(configuration.resolve(lora, ["model.lora.rank=8"]))
    with pytest.raises(ConfigError, match=r"saved with model\.lora="):
        other.restore(tmp_path / "state")


@pytest.mark.quick("float")
def test_peft_loads_the_written_adapters_as_the_merged_model(
    make_learner, lora, model_adapter, tmp_path, capsys, tiny_vlm
):
    run, learner = tmp_path / "run", make_learner(lora)
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(lora.to_dict()))
    (run / "start").symlink_to(tiny_vlm)
    for step in (1, 2):
        learner.update([sample(model_adapter, step)])
    save_checkpoint(run, 2, learner, {"step": 2}, keep=1, best=True)
    assert cli.run(["merge", str(run), str(tmp_path / "adapter"), "--adapter"]) == 0
    assert "the adapters after step 2" in capsys.readouterr().out
    assert cli.run(["merge", str(run), str(tmp_path / "merged")]) == 0
    import peft  # with torchvision beside it, which loading a model patches

    about = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (about["r"], about["lora_alpha"]) == (4, 8)
    base = load_model(tiny_vlm)
    base.load_state_dict(begun(tiny_vlm, lora))
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    ours = load_file(tmp_path / "merged" / "model.safetensors")
    found = theirs.state_dict()
    for name, tensor in ours.items():
        torch.testing.assert_close(found[name], tensor, msg=name)


def test_exporting_only_adapters_is_refused_if_the_base_changed_too(
    make_learner, lora, model_adapter, tmp_path, capsys, tiny_vlm
):
    run, learner = tmp_path / "run", make_learner(lora)
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(lora.to_dict()))
    (run / "start").symlink_to(tiny_vlm)
    learner.update([sample(model_adapter, 1)])
    learner.save_weights(tmp_path / "warm.safetensors")
    learner.load_weights(tmp_path / "warm.safetensors")
    save_checkpoint(run, 1, learner, {"step": 1}, keep=1, best=True)
    assert cli.run(["merge", str(run), str(tmp_path / "adapter"), "--adapter"]) == 2
    assert "its warm start was merged into the base weights" in capsys.readouterr().err
    assert not (tmp_path / "adapter").exists()


def test_leftovers_of_a_killed_process_are_overwritten(tmp_path):
    (tmp_path / ".adapter.partial").mkdir()
    (tmp_path / ".adapter.partial" / "old").touch()
    one = {f"layer.lora_{which}.default.weight": torch.ones(2, 2) for which in "AB"}
    for _ in range(2):
        lora_adapters.write(tmp_path / "adapter", one, LoraConfig(rank=2), "tiny")
        assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
        assert {path.name for path in (tmp_path / "adapter").iterdir()} == {
            "adapter_config.json",
            "adapter_model.safetensors",
        }


def test_an_unknown_target_is_reported_before_anything_starts(tmp_path, capsys):
    command = [*DRY_RUN, "model.lora.rank=4"]
    assert cli.run([*command, "model.lora.targets=[q_porj]"]) == 2
    said = capsys.readouterr().err
    assert "model.lora.targets: 'q_porj' matches no linear layer" in said
    assert "did you mean 'q_proj'" in said
    assert cli.run([*command, "model.lora.targets=[q_proj,v_proj]"]) == 0
    assert cli.run([*DRY_RUN, "model.lora.rank=-1"]) == 2
    assert "model.lora.rank=-1: must not be below 0" in capsys.readouterr().err


def test_a_run_without_adapters_exports_none(
    make_learner, config, model_adapter, tmp_path, capsys, tiny_vlm
):
    run, learner = tmp_path / "run", make_learner(config)
    run.mkdir()
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    (run / "start").symlink_to(tiny_vlm)
    learner.update([sample(model_adapter, 1)])
    save_checkpoint(run, 1, learner, {"step": 1}, keep=1, best=True)
    assert cli.run(["merge", str(run), str(tmp_path / "adapter"), "--adapter"]) == 2
    assert "this model has no adapters (model.lora.rank=0)" in capsys.readouterr().err


@pytest.mark.parametrize(("kept", "here"), [(4, 0), (0, 4), (4, 8)])
def test_a_checkpoint_with_other_adapters_is_not_exported(
    make_learner, config, tmp_path, capsys, tiny_vlm, kept, here
):
    run = tmp_path / "run"
    config.model.lora = LoraConfig(rank=kept)
    save_checkpoint(run, 1, make_learner(config), {"step": 1}, keep=1)
    config.model.lora = LoraConfig(rank=here)
    (run / "config.yaml").write_text(configuration.to_yaml(config.to_dict()))
    (run / "start").symlink_to(tiny_vlm)
    assert cli.run(["merge", str(run), str(tmp_path / "out")]) == 2
    assert "belongs to a different job: it was saved with model.lora=" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_adapters_that_vllm_does_not_support_are_reported_before_anything_starts(tmp_path, capsys):
    command = [*DRY_RUN, "model.lora.rank=4", "model.lora.serve=adapter", "rollout.engine=vllm"]
    assert cli.run([*command, "model.lora.targets=[q_proj, qkv]"]) == 2
    assert "vision tower, such as model.visual.blocks.0.attn.qkv" in capsys.readouterr().err
    assert cli.run([*command, "model.lora.targets=[q_proj]"]) == 0

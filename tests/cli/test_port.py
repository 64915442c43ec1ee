r"""`agentrl port`: key-value lists of examples that EasyR1, veRL, TRL, R1-V and LMM-R1 publish."""

import dataclasses
import json
import re

import pytest
import yaml

from agentrl import config as configuration
from agentrl.cli import run
from agentrl.cli.porting.port import ported
from agentrl.config.finetuning_settings import DPOConfig, RewardModelConfig
from agentrl.config.other_trainers import other_trainers, suggestion
from agentrl.errors import ConfigError

EASYR1_CONFIG = """
data:
  {train_files: hiyouga/math12k@train, val_files: hiyouga/math12k@test, prompt_key: problem,
   answer_key: answer, image_key: images, max_prompt_length: 2048, max_response_length: 2048,
   rollout_batch_size: 512, val_batch_size: 1024,
   shuffle: true, seed: 1, min_pixels: 262144, max_pixels: 4194304, filter_overlong_prompts: true,
   format_prompt: ./examples/format_prompt/math.jinja}
algorithm:
  {adv_estimator: grpo, disable_kl: false, use_kl_loss: true, kl_penalty: low_var_kl,
   kl_coef: 1.0e-2, online_filtering: false, filter_key: overall,
   filter_low: 0.01, filter_high: 0.99}
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 1
    max_grad_norm: 1.0
    ulysses_size: 1
    model:
      model_path: Qwen/Qwen2.5-7B-Instruct
      enable_gradient_checkpointing: true
      freeze_vision_tower: false
      lora: {rank: 0, alpha: 64, target_modules: all-linear, exclude_modules: .*visual.*}
    optim: {lr: 1.0e-6, weight_decay: 1.0e-2, strategy: adamw, lr_warmup_ratio: 0.0}
    fsdp: {enable_full_shard: true}
    offload: {offload_params: true}
  rollout:
    n: 5
    temperature: 1.0
    top_p: 1.0
    gpu_memory_utilization: 0.6
    tensor_parallel_size: 2
    val_override_config: {temperature: 0.6, top_p: 0.95, n: 1}
  reward: {reward_function: "./examples/reward_function/math.py:compute_score"}
trainer:
  {total_epochs: 15, max_steps: null, logger: [file, wandb], val_freq: 5, save_freq: 5,
   save_limit: 3}
"""
EASYR1_GRPO = {
    "model": {"path": "Qwen/Qwen2.5-VL-7B-Instruct", "dtype": "bfloat16", "max_pixels": 4194304},
    "env": {
        "id": "QA-v0", "max_turns": 1, "translator_kwargs": {"instruct": False},
        "kwargs": {
            "data": "hiyouga/geometry3k@train", "grade": "none", "on_long": "skip", "shuffle": 1,
            "template": "./examples/format_prompt/math.jinja",
        },
    },
    "rollout": {
        "groups": 512, "group_size": 5, "max_new_tokens": 2048, "concurrency": 256,
        "engine_kwargs": {"gpu_memory_utilization": 0.6},
    },
    "optim": {"weight_decay": 0.01, "betas": [0.9, 0.999]},
    "train": {"gradient_checkpointing": True, "steps": 60},
    "eval": {"every": 5, "kwargs": {"data": "hiyouga/geometry3k@test"}},
    "checkpoint": {"every": 5, "keep": 3},
    "logging": ["console", "file", "wandb?"],
    "rewards": [{"function": "./examples/reward_function/math.py:compute_score"}],
}  # fmt: skip
"""What differs from our defaults in EasyR1's example for geometry3k, but for the algorithm."""
LMM_R1 = r"""
export DATASET_PATH="./data/deepscaler/deepscaler_message.jsonl"  # the data
export SAVE_PATH="/checkpoints"
python -m openrlhf.models.remote_rm.math_verifier --dataset "${DATASET_PATH}" --input_key message &
ray job submit --address="http://127.0.0.1:8265" \
   -- python -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 --remote_rm_url http://127.0.0.1:5000/get_reward --colocate_all_models \
   --pretrain ./models/Qwen2.5-VL-3B-Instruct --save_path ${SAVE_PATH}/fre \
   --micro_train_batch_size 2 --train_batch_size 256 \
   --rollout_batch_size 256 --temperature 1.0 --n_samples_per_prompt 16 \
   --max_epochs 1 --num_episodes 2 --prompt_max_len 4096 --generate_max_len 4096 \
   --advantage_estimator reinforce_baseline --actor_learning_rate 4e-7 --init_kl_coef 0.001 \
   --prompt_data ${DATASET_PATH} --input_key message --label_key "answer" --lambd 1 --gamma 1 \
   --gradient_checkpointing --save_steps 20 --use_wandb SECRET \
   --use_tensorboard ${SAVE_PATH} > >(tee -a "train.log") 2>&1 &
TRAIN_PID=$!
"""
VERL = r"""
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-8B}
train_batch_size=${TRAIN_BATCH_SIZE:-1024}
rollout_tp=${ROLLOUT_TP:-}
case "${DEVICE}" in
    npu)
        train_batch_size=16
        ;;
esac
DATA=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    data.train_files="['$HOME/data/gsm8k/train.parquet', '$HOME/data/math/train.parquet']"
    data.train_batch_size=${train_batch_size}
    data.max_prompt_length=1024
    data.max_response_length=2048
    data.filter_overlong_prompts=True
)
ACTOR=(actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.actor.ppo_mini_batch_size=256
    # actor_rollout_ref.actor.optim.lr=1
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.rollout.gpu_memory_utilization=${rollout_tp}
    actor_rollout_ref.rollout.n=5
)
LAUNCH=(python3)
"${LAUNCH[@]}" -m verl.trainer.main_ppo \
    "${DATA[@]}" \
    "${ACTOR[@]}" \
    trainer.logger='["console","wandb"]' trainer.total_epochs=15 \
    "$@"
"""


def settings(text):
    """What differs from the defaults, and the KL penalty as it is; what is left open is missing."""
    job = configuration.from_dict(yaml.safe_load(re.sub(r"\b\w+: '\?\?\?'(, )?", "", text)))
    found, kl = configuration.changed_settings(job), job.algorithm.kl
    found.get("algorithm", {}).pop("kl", None)
    return found | ({} if kl.add_to == "none" else {"kl": (kl.add_to, kl.estimate, kl.coefficient)})


@pytest.fixture
def easyr1(tmp_path):
    """Ports a script of EasyR1 with these settings; its configuration lies a folder above."""
    (tmp_path / "examples" / "baselines").mkdir(parents=True)
    (tmp_path / "examples" / "config.yaml").write_text(EASYR1_CONFIG)
    script = tmp_path / "examples" / "baselines" / "job.sh"

    def port(*given, rows=2101):
        words = " \\\n    ".join(["config=examples/config.yaml", *given])
        script.write_text(
            "set -x\nMODEL_PATH=Qwen/Qwen2.5-VL-7B-Instruct  # yours\n\n"
            f"python3 -m verl.trainer.main \\\n    {words}\n"
        )
        return ported("easyr1", script, rows=rows)[0]

    return port


GEO3K = (
    "data.train_files=hiyouga/geometry3k@train", "data.val_files=hiyouga/geometry3k@test",
    "worker.actor.model.model_path=${MODEL_PATH}",
)  # fmt: skip
CLIP = {"clip_high": 0.3}
LOW_VARIANCE_KL = ("loss", "k3", 0.01)


@pytest.mark.parametrize(
    ("given", "algorithm"),
    [
        (
            (),
            {"loss": CLIP, "kl": LOW_VARIANCE_KL},
        ),
        (
            ("worker.actor.clip_ratio_high=0.28", "algorithm.disable_kl=True",
             "algorithm.online_filtering=True", "data.mini_rollout_batch_size=128"),
            {"loss": {"clip_high": 0.28}, "sampling": {"filter_means": [0.01, 0.99]}},
        ),
        (
            ("worker.actor.loss_type=gspo_token", "worker.actor.loss_avg_mode=seq",
             "worker.actor.clip_ratio_low=3e-4", "worker.actor.clip_ratio_high=4e-4",
             "algorithm.disable_kl=True"),
            {"loss": {"name": "gspo", "clip_dual": 3.0}, "aggregate": None},
        ),
        (
            ("worker.actor.loss_type=cispo", "worker.actor.clip_ratio_low=0",
             "worker.actor.clip_ratio_high=4"),
            {"loss": {"name": "cispo", "clip_low": 0}, "kl": LOW_VARIANCE_KL},
        ),
        (
            ("algorithm.adv_estimator=reinforce_plus_plus", "algorithm.use_kl_loss=false",
             "algorithm.kl_penalty=kl", "algorithm.kl_coef=1.0e-3"),
            {"name": "reinforce_pp", "aggregate": None, "loss": CLIP,
             "kl": ("reward", "k1", 0.001)},
        ),
        (("worker.actor.loss_type=sapo", "algorithm.disable_kl=True"), {"loss": {"name": "sapo"}}),
    ],
    ids=["grpo", "dapo", "gspo", "cispo", "reinforce", "sapo"],
)  # fmt: skip
def test_easyr1_scripts_are_ported_with_the_file_that_they_start_from(easyr1, given, algorithm):
    found = settings(easyr1(*GEO3K, *given))
    expected = {"name": "grpo", "aggregate": "token_mean", "minibatch": 640, **algorithm}
    assert found.pop("kl", None) == expected.pop("kl", None)
    assert found.pop("algorithm") == {k: v for k, v in expected.items() if v is not None}
    assert found == EASYR1_GRPO


def test_what_has_no_counterpart_is_listed_with_its_value_and_the_reason(easyr1):
    text = easyr1(*GEO3K, "worker.rollout.top_p=0.95", "trainer.unheard=3")
    listed = [line for line in text.splitlines() if line.startswith("# - ")]
    assert (
        "# - data.min_pixels=262144: images are scaled down to model.max_pixels, never up;" in text
    )
    assert "# - worker.rollout.top_p=0.95: training needs the probabilities of all tokens" in listed
    assert "# - trainer.unheard=3: agentrl port does not know this setting" in listed
    assert any("tensor_parallel_size=2" in line and "place=apart" in line for line in listed)
    assert "clip_high" not in "".join(listed)


def test_lora_and_bf16_settings_are_kept(easyr1):
    found = settings(
        easyr1(
            *GEO3K,
            "worker.actor.model.lora.rank=64",
            "worker.actor.optim.strategy=adamw_bf16",
            "worker.actor.model.lora.target_modules=q_proj,v_proj",
            "worker.actor.optim.lr=1e-5",
            "worker.actor.optim.lr_warmup_ratio=0.05",
            "trainer.max_steps=100",
        )
    )
    assert found["model"]["lora"] == {"rank": 64, "alpha": 64, "targets": ["q_proj", "v_proj"]}
    assert found["train"]["master_dtype"] == "bfloat16"
    assert found["optim"]["lr"] == 1e-5
    assert found["optim"]["lr_warmup_steps"] == 20  # 100 steps of 4 minibatches


def test_verl_scripts_are_ported_without_running_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "run.sh").write_text(VERL)
    text, _, _ = ported("verl", tmp_path / "run.sh")
    found = settings(text)
    assert found["model"]["path"] == "Qwen/Qwen3-8B"
    assert found["rollout"]["groups"] == 1024  # not the 16 of a branch
    assert found["algorithm"] == {
        "name": "grpo", "aggregate": "token_mean", "minibatch": 1280,
    }  # fmt: skip
    assert found["kl"] == ("loss", "k3", 0.001)
    assert "lr" not in found["optim"]  # a comment's
    paths = [one["env"]["kwargs"]["data"] for one in found["mixture"]]
    assert paths == ["/home/me/data/gsm8k/train.parquet", "/home/me/data/math/train.parquet"]
    assert (
        "gpu_memory_utilization=${ROLLOUT_TP:-}: its value is known only when the script runs"
        in text
    )
    assert "trainer.total_epochs=15: train.steps=15 * (rows // 1024); set --rows N" in text


def test_what_a_script_leaves_open_has_to_be_given(tmp_path, capsys):
    (tmp_path / "run.sh").write_text(VERL)
    out = tmp_path / "job.yaml"
    assert run(["port", "verl", str(tmp_path / "run.sh"), "--out", str(out), "--rows", "7473"]) == 0
    assert "Next: agentrl train" in capsys.readouterr().out
    assert run(["train", str(out), "--dry-run"]) == 2
    assert "gpu_memory_utilization has no default; set it in the file" in capsys.readouterr().err
    assert run(["port", "verl", str(tmp_path / "run.sh"), "--out", str(out)]) == 2
    assert f"{out} already exists; choose a different file" in capsys.readouterr().err


def test_lmm_r1_scripts_are_ported_from_their_training_command(tmp_path):
    (tmp_path / "train.sh").write_text(LMM_R1)
    text, _, _ = ported("openrlhf", tmp_path / "train.sh", rows=40_000)
    assert "SECRET" not in text
    found = settings(text)
    assert found["rollout"] == {
        "groups": 256, "group_size": 16, "max_new_tokens": 4096, "max_context": 8192,
        "concurrency": 256,
    }  # fmt: skip
    assert found["algorithm"] == {
        "name": "reinforce_pp_baseline", "minibatch": 256, "loss": {"clip_dual": None},
    }  # fmt: skip
    assert found["kl"] == ("reward", "k1", 0.001)
    assert found["rewards"][0]["kwargs"] == {
        "url": "http://127.0.0.1:5000/get_reward", "prompt_key": "message",
    }  # fmt: skip
    assert found["train"]["steps"] == 312
    assert found["optim"] == {
        "lr": 4e-7, "betas": [0.9, 0.95], "lr_schedule": "cosine", "lr_final_ratio": 0.1,
        "lr_warmup_steps": 150,  # 3% of 312 steps with 16 minibatches
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "python3 -m openrlhf.cli.train_ppo_ray --algo.kl.init_coef 1e-3 --algo.kl.use_loss "
            "--algo.kl.estimator k3 --algo.advantage.estimator group_norm "
            "--algo.dynamic_filtering_enable --algo.dynamic_filtering_range 0 1 "
            "--actor.eps_clip_low_high 0.2 0.27 --actor.adam.lr 5e-7 --train.batch_size 128 "
            "--rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --data.max_len 2048 "
            "--data.prompt_dataset OpenRLHF/prompt-collection-v0.1 "
            "--data.input_key context_messages --algo.advantage.is_correction_enable "
            "--reward.remote_url reward_func.py",
            {
                "algorithm": {
                    "name": "grpo", "aggregate": "token_mean", "minibatch": 128,
                    "loss": {"clip_high": 0.27, "clip_dual": None},
                    "sampling": {"filter_groups": True},
                    "importance_correction": {"kind": "token_truncate", "high": 5.0},
                },
                "kl": ("loss", "k3", 0.001),
                "rewards": [{"function": "reward_func.py:reward_func"}],
            },
        ),
        (
            "openrlhf.cli.train_dpo --train.batch_size 256 --train.max_epochs 1 "
            "--data.max_len 8192 --model.model_name_or_path OpenRLHF/Llama-3-8b-sft-mixture "
            "--adam.lr 5e-7 --model.beta 0.1 "
            "--data.dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku "
            "--data.chosen_key chosen --data.rejected_key rejected --ckpt.save_steps -1",
            {
                "dpo": {
                    "train": {"data": "OpenRLHF/preference_dataset_mixture2_and_safe_pku"},
                    "batch": 256, "on_long": "skip",
                }
            },
        ),
        (
            "openrlhf.cli.train_rm --pretrain OpenRLHF/Llama-3-8b-sft-mixture --learning_rate 9e-6 "
            "--dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku --max_len 8192 "
            "--train_batch_size 256",
            {
                "reward_model": {
                    "train": {"data": "OpenRLHF/preference_dataset_mixture2_and_safe_pku"},
                    "batch": 256, "on_long": "skip",
                }
            },
        ),
    ],
    ids=["dapo", "dpo", "reward-model"],
)  # fmt: skip
def test_openrlhf_commands_are_ported_in_their_old_and_new_spelling(tmp_path, command, expected):
    (tmp_path / "train.sh").write_text(f"read -r -d '' training_commands <<EOF\n{command}\nEOF\n")
    found = settings(ported("openrlhf", tmp_path / "train.sh")[0])
    assert expected.items() <= found.items()


def test_a_command_in_quotes_is_read_as_well(tmp_path):
    (tmp_path / "slurm.sh").write_text(
        'srun -w "$node_1" bash -c \\\n "pip install ray==$VERSION \\\n && ray job submit -- '
        '-m openrlhf.cli.train_ppo_ray \\\n --actor.adam.lr 5e-7" &> log\n'
    )
    found = settings(ported("openrlhf", tmp_path / "slurm.sh")[0])
    assert found["optim"]["lr"] == 5e-7


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (  # R1-V's script for GeoQA
            'torchrun --nproc_per_node="4" --nnodes="1" src/open_r1/grpo.py --use_vllm true '
            "--model_name_or_path ${QWEN_PATH} --dataset_name leonardPKU/GEOQA_R1V_Train_8K "
            "--max_prompt_length 4096 --max_completion_length 2048 --per_device_train_batch_size 1 "
            "--gradient_accumulation_steps 4 --learning_rate 1e-6 --lr_scheduler_type constant "
            "--min_pixels 3136 --max_pixels 501760 --num_train_epochs 2 --num_generations 8",
            {"rows": 8_000},
            {
                "rollout": {
                    "groups": 2, "group_size": None, "max_new_tokens": 2048, "max_context": 6144,
                    "concurrency": 16,
                },
                "optim": {"betas": [0.9, 0.999]},
            },
        ),
        (  # TRL's example of GSPO
            "accelerate launch --config_file zero3.yaml --num_processes 8 examples/scripts/gspo.py "
            "--model_name_or_path Qwen/Qwen3-0.6B --learning_rate 1e-5 "
            '--max_completion_length 1024 --use_peft --lora_target_modules "q_proj", "v_proj" '
            "--per_device_train_batch_size 8 "
            "--num_generations 8 --importance_sampling_level sequence --epsilon 3e-4 "
            "--epsilon_high 4e-4 --beta 0.0 --loss_type grpo --gradient_accumulation_steps 2 "
            "--steps_per_generation 8",
            {},
            {
                "algorithm": {
                    "name": "grpo", "minibatch": 128, "loss": {"name": "gspo"},
                },
                "model": {
                    "path": "Qwen/Qwen3-0.6B", "dtype": "bfloat16",
                    "lora": {"rank": 16, "targets": ["q_proj", "v_proj"]},
                },
            },
        ),
        (
            "accelerate launch --num_processes 2 examples/scripts/gdpo.py "
            "--multi_objective_aggregation normalize_then_sum --reward_weights 1.0 0.5 "
            "--reward_funcs think_format_reward accuracy_reward --loss_type grpo "
            "--use_adaptive_entropy true --entropy_coef 0.01 --entropy_coef_max 0.1",
            {},
            {
                "algorithm": {
                    "name": "gdpo", "loss": {"clip_dual": None}, "entropy_coefficient": 0.01,
                    "entropy_control": {"target": 0.2, "max": 0.1},
                },
                "rewards": [
                    {"function": "trl.rewards:think_format_reward"},
                    {"function": "trl.rewards:accuracy_reward", "weight": 0.5},
                ],
            },
        ),
        (
            "trl dpo --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name anthropic/hh-rlhf "
            "--num_processes 4 --beta 0.2 --loss_type ipo",
            {},
            {
                "dpo": {
                    "train": {"data": "anthropic/hh-rlhf"}, "loss": "ipo", "beta": 0.2,
                    "epochs": 3, "on_long": "skip",
                }
            },
        ),
    ],
    ids=["r1-v", "gspo", "gdpo", "dpo"],
)  # fmt: skip
def test_trl_commands_are_ported(tmp_path, text, given, expected):
    (tmp_path / "train.sh").write_text(f'QWEN_PATH="PATH"\n{text}\n')
    found = settings(ported("trl", tmp_path / "train.sh", **given)[0])
    for section, values in expected.items():
        if isinstance(values, dict):
            values = {k: v for k, v in values.items() if v is not None}
        assert found[section] == values


def test_a_yaml_file_of_trl_names_its_job_by_an_option(tmp_path):
    (tmp_path / "sft.yaml").write_text(
        "{model_name_or_path: Qwen/Qwen2-VL-2B-Instruct, dataset_configs: [all],"
        " learning_rate: 2.0e-05, dataset_name: MMInstruction/Clevr_CoGenT_TrainA_R1,"
        " lr_scheduler_type: cosine,"
        " max_seq_length: 4096, num_train_epochs: 1, per_device_train_batch_size: 4,"
        " gradient_accumulation_steps: 4, warmup_ratio: 0.1}"
    )
    text, kind, _ = ported("trl", tmp_path / "sft.yaml", job="sft", processes=8)
    found = settings(text)
    assert kind == "sft"
    assert found["sft"]["train"] == {"data": "MMInstruction/Clevr_CoGenT_TrainA_R1", "name": "all"}
    assert found["sft"]["batch"] == 128
    assert found["optim"]["lr"] == 2e-5
    assert "# - warmup_ratio=0.1: set optim.lr_warmup_steps to this fraction of all" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("easyrl", "job.yaml"), "easyrl: no such trainer (did you mean 'easyr1'?)"),
        (("trl", "job.yaml", "--job", "drpo"), "--job drpo: no such job (did you mean 'dpo'?)"),
        (("verl", "job.yaml", "--job", "sft"), "only --job train can be converted from verl"),
        (("verl", "empty.sh"), "empty.sh: contains no command that starts verl"),
        (("verl", "none.sh"), "none.sh: cannot be read"),
        (("verl", "bare.sh"), "no settings can be read from the command that"),
    ],
)
def test_what_cannot_be_ported_is_refused(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("trainer: {total_epochs: 1}")
    (tmp_path / "empty.sh").write_text("echo no\n")
    (tmp_path / "bare.sh").write_text("python3 -m verl.trainer.main_ppo\n")
    assert run(["port", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["easyr1", "verl", "openrlhf"])
def test_a_ported_job_passes_a_dry_run(trainer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr("agentrl.training.plan.trial_episodes._BUDGET_S", 0.0)
    (tmp_path / "math.jinja").write_text(r"{{ content | trim }} Answer in \boxed{}.")
    (tmp_path / "reward.py").write_text(
        "def compute_score(reward_inputs):\n    return [{'overall': 1.0} for _ in reward_inputs]\n"
        "def reward_func(queries, prompts, labels):\n    return {'rewards': [1.0] * len(queries)}\n"
    )
    asked = [{"role": "user", "content": "1 + 1?"}]
    row = {
        "easyr1": {"problem": "1 + 1?", "answer": "2"},
        "verl": {
            "prompt": asked,
            "data_source": "openai/gsm8k",
            "reward_model": {"ground_truth": "2"},
        },
        "openrlhf": {"message": json.dumps(asked), "answer": "2"},
    }[trainer]
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 1024)
    given = {
        "easyr1": EASYR1_CONFIG.replace("hiyouga/math12k@train", "rows.jsonl@train")
        .replace("hiyouga/math12k@test", "rows.jsonl@train")
        .replace("./examples/format_prompt/", "")
        .replace("./examples/reward_function/math.py", "reward.py"),
        "verl": "python3 -m verl.trainer.main_ppo data.train_files=rows.jsonl "
        "data.train_batch_size=256 actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.model.path=tiny critic.optim.lr=1e-5 "
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
        "openrlhf": LMM_R1.replace(
            "./data/deepscaler/deepscaler_message.jsonl", "rows.jsonl"
        ).replace("http://127.0.0.1:5000/get_reward", "reward.py"),
    }[trainer]
    file = tmp_path / ("job.yaml" if trainer == "easyr1" else "job.sh")
    file.write_text(given)
    out = tmp_path / "ours.yaml"
    assert run(["port", trainer, str(file), "--out", str(out)]) == 0
    assert run(["train", str(out), "model.path=tiny", "--dry-run"]) == 0, capsys.readouterr().err
    assert "All checks pass" in capsys.readouterr().out


def test_every_counterpart_is_a_setting():
    known = set(settings_of(configuration.load("number_game").to_dict()))
    for loss in ("ppo", "sapo"):
        algorithm = configuration.algorithm_config("ppo", loss=loss)
        known |= set(settings_of({"algorithm": dataclasses.asdict(algorithm)}))
    for section in (DPOConfig(), RewardModelConfig()):
        tree = {"JOB": dataclasses.asdict(section)}
        known |= set(settings_of(tree)) | set(settings_of({"dpo": tree["JOB"]}))
        known |= set(settings_of({"reward_model": tree["JOB"]}))
    given = ("env.kwargs.", "rollout.engine_kwargs.")
    for trainer in other_trainers().values():
        for key in trainer.keys:
            ours, _ = trainer.counterpart(key)
            if ours and not ours.startswith(("~", *given)):
                assert ours in known, f"{trainer.name}: {key}"


def settings_of(tree, prefix=""):
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from settings_of(value, f"{prefix}{name}.")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("worker.rollout.n", "'rollout.group_size'"),
        ("data.train_files", "'env.kwargs.data'"),
        ("algorithm.kl_coef", "'algorithm.kl.coefficient'"),
        ("adv_estimator", "'algorithm.name'"),
        ("beta", "'algorithm.kl.coefficient' or 'dpo.beta'"),
        ("loss_type", "'algorithm.loss.name' or 'algorithm.aggregate' or 'dpo.loss'"),
        (
            "min_pixels",
            "no counterpart in agentrl: images are scaled down to model.max_pixels, never up",
        ),
        ("total_epochs", "'train.steps', epochs times rows divided by rollout.groups"),
        ("actor_rollout_ref.rollout.name", "'rollout.engine'"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "train.micro_batch_tokens bounds"),
        ("worker", "agentrl port easyr1 FILE"),
    ],
)
def test_a_setting_of_another_trainer_is_answered_with_ours(key, words, capsys):
    assert words in (suggestion(key) or suggestion(key, by_end=True))
    value = "{rollout: 3}" if key == "worker" else "3"
    assert run(["train", "number_game", f"{key}={value}", "--dry-run"]) == 2
    assert words in capsys.readouterr().err


def test_a_file_of_another_trainer_is_answered_with_the_command_that_ports_it(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(EASYR1_CONFIG)
    assert run(["train", str(tmp_path / "config.yaml"), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "agentrl port easyr1" in said


def test_unknown_names_are_not_taken_for_those_of_other_trainers():
    assert suggestion("bar") == suggestion("worker.foo") == ""
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        configuration.load("number_game", ["train.stpes=3"])


SHELL = r"""
# Don't stop at this apostrophe: "
LR=1e-6; SMALL=2
export WORKERS=3 EVERY=4
if [ "$1" = big ]; then
  echo "all done"
  LR=1e-3
fi
[ -z "$2" ] || SMALL=16
EVERY+=0
cat > other.sh <<'END'
python3 -m verl.trainer.main_ppo data.train_files=b.parquet a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9
END
cd "$(mktemp -d MARK)" && python3 -m verl.trainer.main_ppo \
    data.train_files=a.parquet \
    data.train_batch_size=$(( WORKERS * (2 + 2) )) \
    actor_rollout_ref.model.path=`touch MARK` \
    actor_rollout_ref.actor.optim.lr=$LR \
    actor_rollout_ref.rollout.n=$SMALL \
    data.max_response_length=$WORKERS trainer.save_freq=$EVERY \
    trainer.experiment_name="run #1" \
    trainer.default_local_dir=2024-01-01 \
    trainer.total_epochs=3 "$@" 2>&1 | tee log.txt; python3 evaluate.py trainer.test_freq=7
"""


def test_a_script_in_every_style_is_read_and_never_run(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "train.sh").write_text(SHELL.replace("MARK", str(mark)))
    text, _, _ = ported("verl", tmp_path / "train.sh")
    found = yaml.safe_load(text)
    assert not mark.exists()
    assert found["optim"]["lr"] == 1e-6
    assert found["env"]["kwargs"]["data"] == "a.parquet"
    assert found["rollout"]["max_new_tokens"] == 3
    assert found["checkpoint"]["every"] == 40
    assert found["rollout"]["groups"] == found["rollout"]["group_size"] == "???"
    assert found["model"]["path"] == "???"
    assert "eval" not in found
    assert "data.train_batch_size=$(( WORKERS * (2 + 2) ))" in text
    assert "trainer.experiment_name=run #1:" in text
    assert "trainer.default_local_dir=2024-01-01:" in text
    assert "# - $@: these arguments are known only when the script runs\n" in text


@pytest.mark.parametrize(
    ("trainer", "given", "open_settings"),
    [
        (
            "trl",
            "per_device_train_batch_size: $BS\nnum_generations: $G\nnum_train_epochs: $E\n",
            {"rollout": ("groups", "group_size"), "algorithm": ("minibatch",), "train": ("steps",)},
        ),
        ("trl", "gradient_accumulation_steps: 0\nnum_generations: 0\n", {"train": ("steps",)}),
        ("trl", "per_device_train_batch_size: x\n", {"rollout": ("groups",)}),
        ("verl", "trainer: {total_epochs: $E}\n", {"train": ("steps",)}),
        ("verl", "data: {train_files: [], max_prompt_length: $P}\n", {"rollout": ("max_context",)}),
        (
            "verl",
            "trainer: {critic_warmup: $W}\n"
            "actor_rollout_ref: {actor: {ppo_epochs: $P, ppo_max_token_len_per_gpu: $T}}\n",
            {"train": ("micro_batch_tokens",), "algorithm": ("epochs",)},
        ),
        (
            "verl",
            "actor_rollout_ref: {actor: {optim: {lr: $L, lr_warmup_steps: -1}}}\n",
            {"optim": ("lr",)},
        ),
        ("openrlhf", "eps_clip_low_high: 0.2\n", {"env.kwargs": ("data",)}),
    ],
)
def test_what_follows_from_unknown_values_is_left_open(tmp_path, trainer, given, open_settings):
    (tmp_path / "job.yaml").write_text(given)
    found = yaml.safe_load(ported(trainer, tmp_path / "job.yaml", rows=100)[0])
    assert found["optim"].get("lr_warmup_steps") != -1
    for section, names in open_settings.items():
        tree = found
        for part in section.split("."):
            tree = tree[part]
        assert [tree[name] for name in names] == ["???"] * len(names)


def test_reward_weights_of_another_number_than_functions_are_left_open(tmp_path):
    (tmp_path / "job.yaml").write_text("reward_funcs: [a, b]\nreward_weights: [1]\n")
    text, _, _ = ported("trl", tmp_path / "job.yaml", rows=100)
    assert [one["weight"] for one in yaml.safe_load(text)["rewards"]] == ["???", "???"]
    assert "reward_weights=[1]: needs one weight for each of 2 functions" in text

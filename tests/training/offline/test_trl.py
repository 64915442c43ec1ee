"""Losses and gradients against those of TRL's trainers, on the same tokens."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset

from agentrl import config as configuration
from agentrl.algorithms.core.preference_loss import (
    AnswerLogprobs,
    preference_losses,
    simpo_reward,
)
from agentrl.data.offline_rows import read_chat, read_preference
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.training.learner.learner import Learner
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.learner.network.logprob_model import LogprobModel
from agentrl.training.learner.network.reward_model import RewardModel
from agentrl.training.offline.offline_dataset import (
    encode_compared,
    encode_learned,
    encode_pair,
)
from tests.policies import families

trl = pytest.importorskip("trl")

ANSWERS = [
    ("Which color is the sky?", "Blue.", "It is green, as grass is."),
    ("Say yes.", "Yes, of course.", "No."),
    ("Count to three.", "1 2 3", "3 2 1 0"),
]
PAIRS = [{"prompt": asked, "chosen": better, "rejected": worse} for asked, better, worse in ANSWERS]
CHATS = [
    {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": better},
            {"role": "user", "content": "Again!"},
            {"role": "assistant", "content": worse},
        ]
    }
    for asked, better, worse in ANSWERS
]
PROMPTS = [
    {
        "prompt": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": asked},
            {"role": "assistant", "content": worse},
            {"role": "user", "content": "Again!"},
        ],
        "completion": [{"role": "assistant", "content": better}],
    }
    for asked, better, worse in ANSWERS
]
TEXTS = [
    {"text": f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{better}<|im_end|>"}
    for asked, better, _ in ANSWERS
] + [{"text": "Plain text."}]
SMALL = {"report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False}


@pytest.fixture(scope="module")
def text_model(tmp_path_factory, tiny_vlm):
    return families.build("text", tiny_vlm, tmp_path_factory.mktemp("text") / "model")


@pytest.fixture(scope="module")
def reward_folder(tmp_path_factory, text_model):
    """A model for sequence classification, as transformers writes it."""
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path_factory.mktemp("reward") / "model"
    shutil.copytree(text_model, folder)
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(text_model, num_labels=1)
    model.score.weight.data.normal_(std=0.3)
    model.save_pretrained(folder)
    return folder


def encoded(folder, rows, parse, encode):
    encoder = ChatEncoder(folder)
    return [
        sequence
        for number, row in enumerate(rows)
        for sequence in encode(parse(row), encoder, number)
    ]


def stepped(folder, settings, sequences, *, start=None, wrap=LogprobModel):
    """Metrics of a step, and the gradient by the names of parameters.

    The reference is the model of the folder, the policy that of `start`.
    """
    learner = Learner(LearnerSettings.of(configuration.Config()), folder, wrap=wrap)
    learner.begin_offline(settings)
    if start is not None:
        learner.load_weights(start)
    optimizer, found = learner._models.optimizer, {}
    step = optimizer.step

    def watched(lr, loss):
        found.update(
            {name: p.grad.full_tensor().clone() for name, p in optimizer._parameters.items()}
        )
        return step(lr, loss)

    optimizer.step = watched
    metrics = learner.offline_step(sequences, 1e-3)
    learner.close()
    return metrics, {name.removeprefix("policy."): grad for name, grad in found.items()}


def assert_same(found, expected, model):
    metrics, gradient = found
    loss = expected
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    model.zero_grad()
    loss.backward()
    theirs = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradient.keys() == theirs.keys()
    scale = max(grad.abs().max() for grad in theirs.values())
    for name, grad in theirs.items():
        torch.testing.assert_close(gradient[name], grad, rtol=1e-4, atol=1e-5 * scale.item())


def test_supervised_fine_tuning_is_that_of_trl(tmp_path, text_model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sequences = encoded(text_model, CHATS, read_chat, encode_learned)
    rows = []
    for one in sequences:
        labels = [-100] * len(one.token_ids)
        for place in one.sampled_positions:
            labels[place] = one.token_ids[place]
        rows.append({"input_ids": list(one.token_ids), "labels": labels})
    model = AutoModelForCausalLM.from_pretrained(text_model)
    trainer = trl.SFTTrainer(
        model,
        trl.SFTConfig(output_dir=str(tmp_path), **SMALL),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    loss = trainer.compute_loss(model, trainer.data_collator(rows))
    assert_same(stepped(text_model, configuration.SFTConfig(), sequences), loss, model)


@pytest.mark.parametrize("rows", [PROMPTS, TEXTS], ids=["prompt-completion", "text"])
def test_trl_reads_the_same_tokens_and_learns_the_same_of_them(tmp_path, text_model, rows):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sequences = encoded(text_model, rows, read_chat, encode_learned)
    trainer = trl.SFTTrainer(
        AutoModelForCausalLM.from_pretrained(text_model),
        trl.SFTConfig(output_dir=str(tmp_path), **SMALL),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    for ours, theirs in zip(sequences, trainer.train_dataset, strict=True):
        count = len(ours.token_ids)
        assert theirs["input_ids"][:count] == list(ours.token_ids)
        learned = [place for place, label in enumerate(theirs["labels"]) if label != -100]
        # TRL also has and learns the line break after the last message of a conversation.
        assert [place for place in learned if 0 < place < count] == [*ours.sampled_positions]
        assert len(theirs["input_ids"]) == count + (rows is PROMPTS)


@pytest.mark.parametrize("kind", ["dpo", "ipo"])
def test_preference_losses_are_those_of_trl(tmp_path, text_model, kind):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sequences = encoded(text_model, PAIRS, read_preference, encode_pair)
    rows = []
    for better, worse in zip(sequences[::2], sequences[1::2], strict=True):
        start = better.sampled_positions[0]
        assert worse.sampled_positions[0] == start
        rows.append(
            {
                "prompt_ids": list(better.token_ids[:start]),
                "chosen_ids": list(better.token_ids[start:]),
                "rejected_ids": list(worse.token_ids[start:]),
            }
        )
    # Another reference than the start, or every log-ratio would be 0.
    model = AutoModelForCausalLM.from_pretrained(text_model)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    changed = tmp_path / "changed"
    shutil.copytree(text_model, changed)
    model.save_pretrained(changed)
    chats = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "chosen": [{"role": "assistant", "content": row["chosen"]}],
            "rejected": [{"role": "assistant", "content": row["rejected"]}],
        }
        for row in PAIRS
    ]
    trainer = trl.DPOTrainer(
        model,
        ref_model=AutoModelForCausalLM.from_pretrained(text_model),
        args=trl.DPOConfig(
            output_dir=str(tmp_path),
            beta=0.3,
            loss_type={"dpo": "sigmoid"}.get(kind, kind),
            **SMALL,
        ),
        train_dataset=Dataset.from_list(chats),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    loss = trainer.compute_loss(model, trainer.data_collator(rows))
    settings = configuration.DPOConfig(loss=kind, beta=0.3)
    assert_same(stepped(text_model, settings, sequences, start=changed), loss, model)


def test_the_simpo_loss_is_that_of_trl():
    from trl.experimental.cpo import CPOTrainer

    torch.manual_seed(0)
    chosen, rejected = -torch.rand(2, 5, dtype=torch.float64)
    settings = configuration.DPOConfig(loss="simpo", beta=2.0, margin=0.7, label_smoothing=0.1)
    trainer = SimpleNamespace(
        loss_type="simpo", beta=2.0, simpo_gamma=0.7, label_smoothing=0.1, alpha=0.0,
        accelerator=SimpleNamespace(device="cpu"),
    )  # fmt: skip
    theirs, *_ = CPOTrainer.cpo_loss(trainer, chosen, rejected)  # means over tokens
    counts = torch.tensor([1.0, 3, 5, 7, 9], dtype=torch.float64)
    ours = [
        simpo_reward(
            AnswerLogprobs(policy=mean * counts, reference=torch.zeros(5), tokens=counts), 2.0
        )
        for mean in (chosen, rejected)
    ]
    torch.testing.assert_close(preference_losses(*ours, settings), theirs)


def test_reward_model_losses_are_those_of_trl_and_transformers_loads_the_result(
    tmp_path, text_model, reward_folder
):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    pairs = [row | {"margin": margin} for row, margin in zip(PAIRS, (0.5, 0, 2), strict=True)]
    sequences = encoded(reward_folder, pairs, read_preference, encode_compared)
    rows = [
        {
            "chosen_ids": list(better.token_ids),
            "rejected_ids": list(worse.token_ids),
            "margin": row["margin"],
        }
        for better, worse, row in zip(sequences[::2], sequences[1::2], pairs, strict=True)
    ]
    model = AutoModelForSequenceClassification.from_pretrained(reward_folder)
    trainer = trl.RewardTrainer(
        model,
        trl.RewardConfig(output_dir=str(tmp_path), center_rewards_coefficient=0.1, **SMALL),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(text_model),
    )
    loss = trainer.compute_loss(model, trainer.data_collator(rows))
    settings = configuration.RewardModelConfig(center=0.1)
    assert_same(stepped(reward_folder, settings, sequences, wrap=RewardModel), loss, model)


def test_margins_of_pairs_shift_the_preference_loss():
    chosen, rejected, margins = torch.rand(3, 5, dtype=torch.float64)
    settings = configuration.DPOConfig(margin=0.2)
    losses = preference_losses(chosen, rejected, settings, margins)
    torch.testing.assert_close(losses, (1 + (rejected - chosen + 0.2 + margins).exp()).log())


def test_transformers_loads_a_reward_model_that_was_trained_here(tmp_path, text_model):
    from transformers import AutoModelForSequenceClassification

    sequences = encoded(text_model, PAIRS, read_preference, encode_compared)
    learner = Learner(LearnerSettings.of(configuration.Config()), text_model, wrap=RewardModel)
    learner.begin_offline(configuration.RewardModelConfig())
    for _ in range(5):
        learner.offline_step(sequences, 1e-3)
    learner.export(tmp_path / "model")
    ours = learner.offline_loss(sequences)
    learner.close()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        rewards = [model(torch.tensor([one.token_ids])).logits.item() for one in sequences]
    assert ours["reward_chosen"] == pytest.approx(sum(rewards[::2]) / 3, rel=1e-4)
    assert ours["reward_rejected"] == pytest.approx(sum(rewards[1::2]) / 3, rel=1e-4)
    assert ours["accuracy"] == 1.0
    again = Learner(
        LearnerSettings.of(configuration.Config()), tmp_path / "model", wrap=RewardModel
    )
    again.begin_offline(configuration.RewardModelConfig())
    assert again.offline_loss(sequences) == pytest.approx(ours, rel=1e-5)
    again.close()
    with pytest.raises(ConfigError, match="is a reward model, which cannot generate replies"):
        Learner(LearnerSettings.of(configuration.Config()), tmp_path / "model")
    assert not torch.distributed.is_initialized()

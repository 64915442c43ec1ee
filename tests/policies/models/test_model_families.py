"""Tiny models of every family against transformers: prompts, log-probabilities, training.

The models and the comparisons are those of `benchmarks/model_families.py`.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentrl.check.support import model_comparison
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models import load_model
from agentrl.rewards.form import is_think_answer
from agentrl.types import IMAGE, Message
from tests.policies.pictures import picture

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import model_families
from family_models import FAMILIES, build

_SAME = "prompts are those of the model's own template"


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = build(request.param, tmp_path_factory.mktemp("family") / "model")
    return SimpleNamespace(name=request.param, folder=folder, encoder=ChatEncoder(folder))


def test_an_adapter_of_its_own_is_chosen(family: Any) -> None:
    is_generic = family.name == "LLaVA (generic)"
    assert (type(family.encoder.model_adapter).__name__ == "ProcessorAdapter") == is_generic
    assert bool(family.encoder.model_adapter.notes) == is_generic


def test_prompts_equal_those_of_the_published_template(family: Any) -> None:
    assert check_template(family.encoder, family.folder) == _SAME


def test_logprobs_with_shared_prefixes_equal_those_of_each_sequence_alone(family: Any) -> None:
    samples = model_comparison.episodes(family.encoder)
    model = load_model(family.folder, model_adapter=family.encoder.model_adapter)
    ours = model_comparison.packed_logprobs(family.encoder, model, samples)
    theirs = model_comparison.transformers_logprobs(family.folder, family.encoder, samples)
    assert model_comparison.difference(ours, theirs) < 1e-4


def test_compact_pixels_become_those_of_the_processor(family: Any) -> None:
    adapter = family.encoder.model_adapter
    if adapter.image_token_id is None:
        assert adapter.compact_pixels([]) == adapter.expand_pixels({}) == {}
        return
    sizes = [(140, 84), (84, 280), (56, 56)]
    images = [adapter.scale(picture(i, *size), None, 90_000) for i, size in enumerate(sizes)]
    compact, expected = adapter.compact_pixels(images), adapter.pixels(images)
    found = adapter.expand_pixels(compact)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=0, msg=name)
    # The processors of the others add empty tiles after they have normalized the images.
    is_compact = family.name.startswith(("Qwen", "Gemma", "InternVL"))
    stored = {value.dtype for name, value in compact.items() if name.endswith("pixel_values")}
    assert stored == {torch.uint8 if is_compact else torch.float32}
    some = adapter.expand_pixels(adapter.select_images(compact, [2, 0]))
    for name, value in adapter.select_images(expected, [2, 0]).items():
        torch.testing.assert_close(some[name], value, atol=1e-6, rtol=0, msg=name)


def test_the_hf_engine_samples_with_the_models_probabilities(family: Any) -> None:
    assert model_families.hf_difference(family.folder, family.encoder) < 1e-4


@pytest.mark.slow
def test_grpo_makes_the_better_reply_more_probable(family: Any) -> None:
    check_training(family)


@pytest.mark.parametrize("name", ["Gemma 2", "Gemma 3", "InternVL 3", "Qwen3-MoE"])
def test_grpo_trains_models_of_several_kinds(name: str, tmp_path: Path) -> None:
    folder = build(name, tmp_path / "model")
    check_training(SimpleNamespace(folder=folder, encoder=ChatEncoder(folder)))


def check_training(family: Any) -> None:
    before, after = model_families.trained(family.folder, family.encoder)
    assert after > before + 0.1


def test_no_text_passes_for_a_turn(family: Any) -> None:
    encoder = family.encoder
    talk = Conversation(encoder, "Play.")
    plain = talk.observe(Message(role="user", text="hello"))
    markers = sorted(encoder.chat_format.protected)
    hostile = Conversation(encoder, "Play.").observe(
        Message(role="user", text=f"hello {' '.join(markers)}")
    )
    tokens = encoder.chat_model.token_ids
    for name in markers:
        assert hostile.token_ids.count(tokens[name]) == plain.token_ids.count(tokens[name])


def test_a_prompt_extends_the_previous_one_and_its_reply(family: Any) -> None:
    sees = family.encoder.model_adapter.image_token_id is not None
    talk, said = Conversation(family.encoder, "Play.\n"), ()
    for turn in range(3):
        images = (picture(turn),) if sees else ()
        text = f"\nturn {IMAGE * len(images)}\n\n now"
        prompt = talk.observe(Message(role="user", text=text, images=images))
        assert prompt.token_ids[: len(said)] == said
        talk.answer((70, 71))
        said = (*prompt.token_ids, 70, 71, family.encoder.end_id)


@pytest.mark.parametrize("name", ["DeepSeek-R1-Distill", "Qwen3-Thinking", "Qwen3-VL-Thinking"])
def test_a_thought_that_the_template_opens_belongs_to_the_reply(name: str, tmp_path: Path) -> None:
    encoder = ChatEncoder(build(name, tmp_path / "model"))
    prompt = Conversation(encoder, "Play.").observe(Message(role="user", text="hello"))
    opened = encoder.text_ids("<think>\n")
    assert prompt.token_ids[-len(opened) :] == opened
    said = encoder.text(encoder.text_ids("left\n</think>\n\n<answer>3</answer>"))
    assert said == "<think>\nleft\n</think>\n\n<answer>3</answer>"
    assert is_think_answer(said)
    for reply in (said, "<think>left\n</think>\n\n<answer>3</answer>"):
        assert encoder.text(encoder.reply_ids(reply)) == said
    without = encoder.text(encoder.reply_ids("<answer>3</answer>"))
    assert without == "<think>\n\n</think>\n\n<answer>3</answer>"

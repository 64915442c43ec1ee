import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines import hf_decoding
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.models import adapter_for, load_model, load_on_meta
from agentrl.policies.models.model_adapter import resize_image, target_size
from agentrl.policies.models.model_loading import _attention
from agentrl.policies.models.processor_adapter import ProcessorAdapter
from agentrl.types import Message, Prompt
from tests.policies import families
from tests.policies.pictures import picture, screen
from tests.policies.scoring import forward_logprobs

SIZES = [(4, 5), (2, 2), (2, 2), (7, 3)]
"""Width and height of test images, in tokens."""


@pytest.fixture(scope="module", params=families.FAMILIES)
def model_folder(
    request: pytest.FixtureRequest, tiny_vlm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return families.build(request.param, tiny_vlm, tmp_path_factory.mktemp("family") / "model")


@pytest.fixture(scope="module")
def family(model_folder: Path) -> tuple[Any, ChatEncoder]:
    """The model of a family and its encoder."""
    return load_model(model_folder).eval(), ChatEncoder(model_folder)


def prompts(encoder: ChatEncoder) -> list[Prompt]:
    """Conversations of different lengths, with up to three images of different sizes."""
    shown = encoder.model_adapter.image_token_id is not None
    found = [Conversation(encoder, "").observe(Message(role="user", text="hello"))]
    talk = Conversation(encoder, "play")
    for turn, (width, height) in enumerate(SIZES[:3]):
        message = screen(turn, width=28 * width, height=28 * height)
        found.append(talk.observe(message if shown else Message(role="user", text="next")))
        talk.answer((5, 6, 7, 258))
    return found


def test_pixels_equal_the_models_own_image_processor(model_folder: Path) -> None:
    from transformers import AutoImageProcessor

    model_adapter = adapter_for(model_folder)
    if model_adapter.image_token_id is None:
        pytest.skip("text-only model")
    side = 32 if "qwen3" in (model_folder / "config.json").read_text() else 28
    images = [picture(i, w * side, h * side) for i, (w, h) in enumerate(SIZES)]
    own = AutoImageProcessor.from_pretrained(model_folder)(images, return_tensors="pt")
    ours = model_adapter.pixels(images)
    assert sorted(own) == sorted(ours)
    assert torch.equal(own["image_grid_thw"], ours["image_grid_thw"])
    torch.testing.assert_close(ours["pixel_values"], own["pixel_values"], atol=1e-6, rtol=0)


def test_image_features_and_gradients_equal_those_of_transformers(
    model_folder: Path, family: tuple[Any, ChatEncoder]
) -> None:
    from transformers import AutoModelForImageTextToText

    ours, encoder = family
    model_adapter = encoder.model_adapter
    if model_adapter.image_token_id is None:
        pytest.skip("text-only model")
    side = 32 if "qwen3" in (model_folder / "config.json").read_text() else 28
    reference = AutoModelForImageTextToText.from_pretrained(model_folder)
    for sizes in (SIZES, [(3, 4)] * 3):
        pixels = model_adapter.pixels(
            [picture(i, w * side, h * side) for i, (w, h) in enumerate(sizes)]
        )
        seen = []
        for model in (reference, ours):
            values = pixels["pixel_values"].clone().requires_grad_()
            features = model.model.get_image_features(values, pixels["image_grid_thw"])
            output = torch.cat(list(features.pooler_output))
            (gradient,) = torch.autograd.grad(output.square().sum(), values)
            seen.append((output, gradient))
        for expected, actual in zip(*seen, strict=True):
            assert (actual - expected).norm() < 1e-5 * expected.norm()


def test_batched_generation_equals_generate_of_each_prompt(
    family: tuple[Any, ChatEncoder],
) -> None:
    model, encoder = family
    asked, model_adapter = prompts(encoder), encoder.model_adapter
    greedy = [Sampling(temperature=0, max_new_tokens=8)] * len(asked)
    together = hf_decoding.generate_batch(
        model, model_adapter, asked, greedy, encoder.eos_token_ids
    )
    for prompt, drawn in zip(asked, together, strict=True):
        ids = torch.tensor([prompt.token_ids])
        inputs = model_adapter.forward_inputs(
            ids, torch.ones_like(ids, dtype=torch.bool), prompt.images
        )
        generated = model.generate(
            **inputs,
            max_new_tokens=8,
            do_sample=False,
            suppress_tokens=list(model_adapter.banned_token_ids) or None,
            eos_token_id=list(encoder.eos_token_ids),
        )
        assert generated[0, ids.shape[1] :].tolist() == drawn.token_ids


@pytest.mark.parametrize("shown", [True, False])
def test_logprobs_equal_those_of_one_forward_pass(
    family: tuple[Any, ChatEncoder], shown: bool
) -> None:
    model, encoder = family
    words = [Conversation(encoder, "").observe(Message(role="user", text="a" * n)) for n in (1, 9)]
    asked = prompts(encoder) if shown else words
    how = [Sampling(temperature=0.7, max_new_tokens=6, seed=seed) for seed in range(len(asked))]
    drawn = hf_decoding.generate_batch(
        model, encoder.model_adapter, asked, how, encoder.eos_token_ids
    )
    for prompt, reply in zip(asked, drawn, strict=True):
        expected = forward_logprobs(model, encoder, prompt, reply.token_ids, 0.7)
        np.testing.assert_allclose(reply.logprobs, expected, atol=1e-3)


@given(st.lists(st.sampled_from(SIZES), max_size=4), st.lists(st.integers(0, 255), max_size=5))
def test_collapsing_leaves_one_token_per_image(
    encoder: ChatEncoder, sizes: list[tuple[int, int]], text: list[int]
) -> None:
    model_adapter = encoder.model_adapter
    images = [np.zeros((28 * h, 28 * w, 3), np.uint8) for w, h in sizes]
    ids, expected = [*text], [*text]
    for image in images:
        markup = model_adapter.image_markup(image)
        ids += [*markup, *text]
        expected += [id for id, before in zip(markup, [None, *markup], strict=False)
                     if id != model_adapter.image_token_id or before != id]  # fmt: skip
        expected += text
    collapsed = model_adapter.collapse_image_tokens(ids, images)
    assert collapsed.count(model_adapter.image_token_id or 0) == len(images)
    assert collapsed == expected


def test_an_image_that_does_not_match_its_tokens_is_an_error(encoder: ChatEncoder) -> None:
    ids = encoder.model_adapter.image_markup(picture(0))
    with pytest.raises(ValueError, match="runs of"):
        encoder.model_adapter.collapse_image_tokens(ids, [picture(0, 84, 168)])
    with pytest.raises(ValueError, match="runs of"):
        encoder.model_adapter.collapse_image_tokens(ids, [])
    with pytest.raises(ValueError, match="multiples of 28"):
        encoder.model_adapter.pixels([picture(0, 80, 140)])


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(28 * 28, 10**6))
def test_target_sizes_respect_the_limits(width: int, height: int, max_pixels: int) -> None:
    w, h = target_size((width, height), None, max_pixels, 28)
    assert (w % 28, h % 28) == (0, 0)
    assert w >= 28 <= h
    assert w * h <= max_pixels


def test_every_placeholder_is_banned(tiny_vlm: Path) -> None:
    assert adapter_for(tiny_vlm).banned_token_ids == (259, 260, 261, 262, 263)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"[" * 100_000, r"config\.json cannot be read: maximum recursion"),
        ("tokenizer.json", b"{}", r"cannot be read by adapter QwenVL: KeyError: '<\|vision_end"),
        (
            "preprocessor_config.json",
            b"{}",
            "by adapter QwenVL: KeyError: 'image_mean'",
        ),
        (
            "generation_config.json",
            b'{"eos_token_id": ["x"]}',
            r"eos_token_id must be .*got \['x'\]",
        ),
        ("chat_template.jinja", b"\xff", "cannot be used for chats: UnicodeDecodeError"),
        (
            "chat_template.jinja",
            b"{% for i in range(99999) %}" + b"x" * 1000 + b"{% endfor %}",
            "the output exceeds 10,000,000 characters",
        ),
    ],
)
def test_a_damaged_file_of_a_model_is_a_config_error(
    tiny_vlm: Path, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    for file in tiny_vlm.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        ChatEncoder(tmp_path)


def test_an_unknown_vision_model_without_a_processor_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "vision_config": {}}))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="the processor cannot be used"):
        adapter_for(tmp_path)


@pytest.mark.parametrize("size", [(84, 140), (28, 28)])
def test_a_resized_image_is_a_copy(size: tuple[int, int]) -> None:
    screen = picture(0)
    scaled = resize_image(screen, size)
    before = scaled.copy()
    screen[:] = 0  # as environments do that reuse their buffer
    np.testing.assert_array_equal(scaled, before)


def test_an_image_is_resized_by_averaging() -> None:
    screen = np.zeros((1280, 720, 3), np.uint8)
    screen[:640] = 200
    small = resize_image(screen, (84, 140))
    assert small.shape == (140, 84, 3)
    assert (small[:69] == 200).all()
    assert (small[71:] == 0).all()


_ASKED = [("auto", "bfloat16"), ("auto", "float32"), ("eager", "bfloat16")]


def test_flash_attention_is_used_if_installed_and_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("")
    metadata = tmp_path / "flash_attn-2.8.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n")
    (metadata / "top_level.txt").write_text("flash_attn\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = (
        "import torch\n"
        "from agentrl import accelerators\n"
        "torch.cuda.is_available = accelerators.is_cuda = lambda: True\n"
        "from agentrl.policies.models.model_loading import _attention\n"
        f"print(*(_attention(*choice) for choice in {_ASKED}))\n"
        "torch.cuda.is_available = accelerators.is_cuda = lambda: False\n"
        "print(_attention('auto', 'bfloat16'))\n"
    )
    # transformers looks for packages once in a process.
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["flash_attention_2", "sdpa", "eager", "sdpa"]


def test_sdpa_is_used_without_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [_attention(*choice) for choice in _ASKED] == ["sdpa", "sdpa", "eager"]


def test_code_in_a_models_folder_is_refused_without_a_question(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail(prompt))
    code = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (tmp_path / "mine.py").write_text("raise SystemExit('the code has run')")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": code}))
    for read in (load_on_meta, adapter_for):
        with pytest.raises(ConfigError, match="needs Python code from its folder"):
            read(tmp_path)
    processor = {"processor_class": "Mine", "auto_map": {"AutoProcessor": "mine.Processor"}}
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": []}')
    with pytest.raises(ConfigError, match="the processor cannot be used"):
        ProcessorAdapter(tmp_path)

import hashlib
import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.policies.models.model_source import check_model, find_config, resolve_model
from agentrl.policies.tiny_model import pieces, token_ids


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_a_model_that_does_not_fit_on_the_disk_is_an_os_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            resolve_model(ModelConfig(), 0, tmp_path / "start")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(
    tiny_vlm: Path, tmp_path: Path
) -> None:
    again = digests(tiny_model.build(tmp_path / "again", 0))
    other = digests(tiny_model.build(tmp_path / "other", 1))
    assert again == digests(tiny_vlm)
    assert {name for name in again if again[name] != other[name]} == {"model.safetensors"}


def test_transformers_loads_model_tokenizer_and_processor(tiny_vlm: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    assert 1_500_000 < sum(p.numel() for p in model.parameters()) < 2_500_000
    assert not model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id[0] == AutoTokenizer.from_pretrained(
        tiny_vlm
    ).convert_tokens_to_ids("<|im_end|>")
    processor = AutoProcessor.from_pretrained(tiny_vlm)
    assert type(processor).__name__ == "Qwen2_5_VLProcessor"


@given(st.text())
def test_any_text_round_trips(tiny_tokenizer: Tokenizer, text: str) -> None:
    tokens = tiny_tokenizer.encode(text).ids
    assert tiny_tokenizer.decode(tokens, skip_special_tokens=False) == text


def test_a_reply_has_few_tokens(tiny_tokenizer: Tokenizer) -> None:
    answer = "<think>green 3 7 5 pick 7</think><action>tap(0.21, 0.70)</action>"
    assert len(tiny_tokenizer.encode(answer).ids) == 13
    for piece in pieces():
        assert len(tiny_tokenizer.encode(piece).ids) == 1


def test_invalid_sizes_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'layers'"):
        tiny_model.build(tmp_path / "a", 0, layer=2)
    with pytest.raises(ConfigError, match="multiple of 32\\*heads"):
        check_model(ModelConfig(path="tiny", tiny={"hidden": 100, "heads": 3}))


def test_a_missing_model_is_a_config_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=f"model.path={missing}: no such folder"):
        resolve_model(ModelConfig(path=missing), 0, tmp_path / "tiny")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        resolve_model(ModelConfig(path=str(tmp_path)), 0, tmp_path / "tiny")


def test_a_tiny_model_is_built_once_in_its_folder(tmp_path: Path) -> None:
    folder = resolve_model(ModelConfig(path="tiny"), 3, tmp_path / "tiny")
    assert (folder, sorted(p.name for p in tmp_path.iterdir())) == (tmp_path / "tiny", ["tiny"])
    assert resolve_model(ModelConfig(path="tiny"), 3, folder) == folder


def test_a_hub_model_that_cannot_be_downloaded_is_a_config_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def refuse(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ConfigError, match=r"cannot be reached: no network\. Without a network, "):
        resolve_model(ModelConfig(path="somebody/model"), 0, tmp_path / "tiny")


def cached(folder: Path, family: str) -> None:
    """A model's config.json as the hub's cache keeps it."""
    snapshot = folder / "models--somebody--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(f'{{"model_type": "{family}", "vision_config": {{}}}}')
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")


def test_a_cached_hub_model_is_checked_without_a_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cached(tmp_path, "qwen2_vl")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", None)
    model = ModelConfig(path="somebody/model")
    check_model(model)
    assert find_config(model) == tmp_path / "models--somebody--model" / "snapshots" / "abc"
    with pytest.raises(ConfigError, match="there is no such model"):
        find_config(replace(model, adapter="qwn-vl"))


def test_a_missing_folder_in_an_existing_one_is_not_a_hub_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    check_model(ModelConfig(path="models/mine"))
    (tmp_path / "models").mkdir()
    with pytest.raises(ConfigError, match=r"model\.path=models/mine: no such folder"):
        check_model(ModelConfig(path="models/mine"))


def test_configured_words_become_tokens(tmp_path: Path) -> None:
    words = ["<action>", "</action>", "north", " north", "green", "a", "<|im_end|>", "north"]
    folder = tiny_model.build(tmp_path, 0, words=words)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert len(tokenizer.encode("<action>north</action>").ids) == 3
    config = json.loads((folder / "config.json").read_text())
    assert config["text_config"]["vocab_size"] == len(token_ids()) + 4
    for wrong in ("north", [1], [""]):
        with pytest.raises(ConfigError, match=r"model\.tiny\.words"):
            check_model(ModelConfig(path="tiny", tiny={"words": wrong}))

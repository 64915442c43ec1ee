import json
import os

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from agentrl import extras
from agentrl.config import ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.chat.template_comparison import check_template
from agentrl.policies.models import gguf_conversion, model_source
from agentrl.policies.models.model_loading import load_model
from agentrl.policies.open_encoder import open_encoder

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] + '\n' + message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def interleaved(weight, heads):
    """Return queries or keys with the rotary pairs next to each other, as llama.cpp has them."""
    pairs = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def gguf_model(tmp_path_factory):
    """A Llama with random weights, of which one matrix is quantized, and its GGUF file."""
    gguf = pytest.importorskip("gguf", reason="needs the extra gguf")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = [*sorted(ByteLevel.alphabet()), "<|im_start|>", "<|im_end|>", "on", "one"]
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.3, bos_token_id=256, eos_token_id=257, tie_word_embeddings=True,
        )
    ).eval()  # fmt: skip
    down = model.model.layers[1].mlp.down_proj.weight
    packed = gguf.quants.quantize(down.detach().numpy(), gguf.GGMLQuantizationType.Q4_1)
    with torch.no_grad():
        kind = gguf.GGMLQuantizationType.Q4_1
        down.copy_(torch.from_numpy(gguf.quants.dequantize(packed, kind)))

    file = tmp_path_factory.mktemp("package") / "tiny-llama.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3, 3, 1, 1])
    writer.add_token_merges(["o n", "on e"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.model.state_dict(prefix="model.").items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        value = weight.numpy()
        if "attn_q" in name or "attn_k" in name:
            value = interleaved(value, 4 if "attn_q" in name else 2)
        if name == "blk.1.ffn_down.weight":
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, value.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_conversion, "FOLDER", tmp_path / "cache")
    return tmp_path / "cache"


def test_a_converted_model_has_the_same_logits_and_tokens(gguf_model, cache):
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer

    original, file = gguf_model
    settings = ModelConfig(path=str(file))
    model_source.check_model(settings)
    folder = model_source.resolve_model(settings, 0, cache / "unused")
    assert not model_source.is_on_hub(settings)

    ids = torch.arange(0, 260, 3)[None]
    converted = load_model(folder)
    theirs = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    with torch.no_grad():
        logits = converted(ids).logits
        assert logits.equal(theirs(ids).logits)
        assert torch.allclose(logits, original(ids).logits, atol=1e-5)
    assert converted.lm_head.weight is converted.model.embed_tokens.weight
    with safe_open(folder / "model.safetensors", framework="pt") as stored:
        assert "lm_head.weight" not in set(stored.keys())

    encoder = open_encoder(settings, folder)
    assert check_template(encoder, folder) == "prompts are those of the model's own template"
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "one  7?"}]
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    prompt, is_whole = encoder.first_prompt("Be short.", "user", ("one  7?",))
    asked = encoder.ids(prompt)
    if not is_whole:
        asked += encoder.question("user", ("one  7?",))
    assert list(asked) == expected
    assert 259 in expected


def test_a_file_is_converted_once_and_again_when_it_changes(gguf_model, cache, monkeypatch):
    _, file = gguf_model
    monkeypatch.syspath_prepend(file.parent)
    converted = []

    def convert(file, folder):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        converted.append(file)

    monkeypatch.setattr(gguf_conversion, "_convert", convert)
    first = gguf_conversion.converted_folder(str(file))
    assert gguf_conversion.converted_folder(str(file)) == first
    assert gguf_conversion.converted_folder(file.name) == first  # found on sys.path
    assert converted == [file]
    stat = file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert gguf_conversion.converted_folder(str(file)) != first
    assert converted == [file, file]


def test_files_that_cannot_be_converted_are_rejected(tmp_path, cache, monkeypatch):
    with pytest.raises(ConfigError, match=r"model.path=no.gguf: no such file in the current"):
        model_source.check_model(ModelConfig(path="no.gguf"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    with monkeypatch.context() as patch:
        patch.setattr(gguf_conversion, "find_spec", lambda name: None if name == "gguf" else name)
        with pytest.raises(ConfigError) as error:
            model_source.check_model(ModelConfig(path=str(broken)))
        assert str(error.value) == f"model.path={broken}: {extras.NO_GGUF}"
    pytest.importorskip("gguf", reason="needs the extra gguf")
    with pytest.raises(ConfigError, match=r"broken.gguf cannot be converted: "):
        model_source.check_model(ModelConfig(path=str(broken)))
    assert not [found for found in cache.iterdir() if found.is_dir()]

"""Optional dependencies, and the messages that say how to install them."""

from importlib.util import find_spec

GET_MODELS = "pip install 'agentrl-screens[train]'"
GET_VLLM = (
    "pip install 'agentrl-screens[gpu]' ('agentrl-screens[cpu]' without a GPU); "
    "rollout.engine=hf works without it"
)
GET_RAY = "pip install 'agentrl-screens[ray]'; rollout.launcher=local works without it"
GET_OCR = (
    "pip install 'agentrl-screens[ocr]'; agentrl.devices.vision.Glyphs reads known glyphs without "
    "it"
)
GET_LORA = (
    "pip install 'agentrl-screens[lora]'; model.lora.rank=0 trains the whole model without it"
)
GET_QLORA = "pip install 'agentrl-screens[qlora]'; model.lora.base=float works without it"
GET_FLASH = (
    "pip install 'agentrl-screens[gpu]' if there is a GPU; model.attention=auto uses SDPA otherwise"
)
GET_REMOTE = "pip install 'agentrl-screens[remote]'"
NO_VLLM = f"rollout.engine=vllm needs vLLM, not installed: {GET_VLLM}"
NO_RAY = f"rollout.launcher=ray needs Ray, not installed: {GET_RAY}"
NO_REMOTE = f"rollout.engine=remote needs httpx2, not installed: {GET_REMOTE}"
NO_FLASH = f"model.attention=flash_attention_2 needs flash-attn, not installed: {GET_FLASH}"
NO_OCR = f"reading any text off a screen needs RapidOCR, not installed: {GET_OCR}"

_OF_MODELS = ("safetensors", "tokenizers", "torch", "transformers")


def missing(engine: str, launcher: str) -> list[str]:
    """The packages that running a model needs and that are not installed, each with its remedy.

    A model on a remote server needs only the HTTP client.

    Args:
        engine: the configuration's `rollout.engine`.
        launcher: the configuration's `rollout.launcher`.
    """
    if engine == "remote":
        return [NO_REMOTE] if find_spec("httpx2") is None else []
    absent = [name for name in _OF_MODELS if find_spec(name) is None]
    checks = [
        (absent, f"models need {', '.join(absent)}, not installed: {GET_MODELS}"),
        (engine == "vllm" and find_spec("vllm") is None, NO_VLLM),
        (launcher == "ray" and find_spec("ray") is None, NO_RAY),
    ]
    return [remedy for is_missing, remedy in checks if is_missing]

"""Optional dependencies, and the messages that say how to install them."""

from collections.abc import Mapping
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
GET_8BIT = "pip install 'agentrl-screens[qlora]'; optim.moments=bfloat16 works without it"
GET_FLASH = (
    "pip install --no-build-isolation 'agentrl-screens[flash]', which compiles it against the "
    "installed torch; model.attention=auto does without it"
)
GET_REMOTE = "pip install 'agentrl-screens[remote]'"
GET_SGLANG = "pip install sglang, or give the address of a server: rollout.engine_kwargs={url: ...}"
NO_VLLM = f"rollout.engine=vllm needs vLLM, not installed: {GET_VLLM}"
NO_RAY = f"rollout.launcher=ray needs Ray, not installed: {GET_RAY}"
NO_REMOTE = f"rollout.engine=remote needs httpx2, not installed: {GET_REMOTE}"
NO_HTTP_CLIENT = f"rollout.engine=sglang needs httpx2, not installed: {GET_REMOTE}"
NO_SGLANG = f"rollout.engine=sglang needs SGLang, not installed: {GET_SGLANG}"
NO_8BIT = f"optim.moments=8bit needs bitsandbytes, not installed: {GET_8BIT}"
NO_FLASH = f"model.attention=flash_attention_2 needs flash-attn, not installed: {GET_FLASH}"
NO_OCR = f"reading any text off a screen needs RapidOCR, not installed: {GET_OCR}"

_OF_MODELS = ("safetensors", "tokenizers", "torch", "transformers")


def missing(packages: Mapping[str, str]) -> list[str]:
    """The packages that are not installed, each as its message.

    Args:
        packages: by import name, each with the message if it is missing.
    """
    return [message for name, message in packages.items() if find_spec(name) is None]


def advice_on_import(error: BaseException | None) -> str | None:
    """What to install where an import failed because a library of models is missing."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    if error is None or error.name not in _OF_MODELS:
        return None
    return f"needs {error.name}, not installed: {GET_MODELS}"


def missing_for_models(launcher: str) -> tuple[list[str], list[str]]:
    """What running a local model needs and that is not installed, as messages.

    Args:
        launcher: the configuration's `rollout.launcher`.

    Returns:
        The messages on the libraries of models, and those on the launcher.
    """
    absent = [name for name in _OF_MODELS if find_spec(name) is None]
    models = f"models need {', '.join(absent)}, not installed: {GET_MODELS}"
    return [models] if absent else [], missing({"ray": NO_RAY}) if launcher == "ray" else []

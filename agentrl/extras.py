"""Optional dependencies, and messages that say how to install them."""

from collections.abc import Mapping
from importlib.util import find_spec

GET_MODELS = "pip install 'agentrl-screens[train]'"
GET_VLLM = (
    "pip install 'agentrl-screens[gpu]' ('agentrl-screens[cpu]' without a GPU), or use "
    "rollout.engine=hf"
)
GET_RAY = "pip install 'agentrl-screens[ray]', or use rollout.launcher=local"
GET_OCR = (
    "pip install 'agentrl-screens[ocr]'; agentrl.devices.vision.Glyphs reads known glyphs without "
    "it"
)
GET_LORA = "pip install 'agentrl-screens[lora]', or set model.lora.rank=0 to train the whole model"
GET_QLORA = "pip install 'agentrl-screens[qlora]', or use model.lora.base=float"
GET_8BIT = "pip install 'agentrl-screens[qlora]', or use optim.moments=bfloat16"
GET_FLASH = (
    "pip install --no-build-isolation 'agentrl-screens[flash]', which compiles it against the "
    "installed torch, or use model.attention=auto"
)
GET_GGUF = "pip install 'agentrl-screens[train,gguf]'"
GET_REMOTE = "pip install 'agentrl-screens[remote]'"
GET_SGLANG = "pip install sglang, or set the address of a server: rollout.engine_kwargs={url: ...}"
GET_DATA = "pip install 'agentrl-screens[data]'"
GET_MINARI = "pip install 'agentrl-screens[minari]'"
GET_PAGE = "pip install 'agentrl-screens[page]'"
GET_WEB = "pip install 'agentrl-screens[web]'"
GET_STREAM = "pip install 'agentrl-screens[stream]'"
NO_VLLM = f"rollout.engine=vllm needs vLLM, which is not installed; run: {GET_VLLM}"
NO_RAY = f"rollout.launcher=ray needs Ray, which is not installed; run: {GET_RAY}"
NO_REMOTE = f"rollout.engine=remote needs httpx2, which is not installed; run: {GET_REMOTE}"
NO_HTTP_CLIENT = f"rollout.engine=sglang needs httpx2, which is not installed; run: {GET_REMOTE}"
NO_SGLANG = f"rollout.engine=sglang needs SGLang, which is not installed; run: {GET_SGLANG}"
NO_8BIT = f"optim.moments=8bit needs bitsandbytes, which is not installed; run: {GET_8BIT}"
NO_FLASH = (
    f"model.attention=flash_attention_2 needs flash-attn, which is not installed; run: {GET_FLASH}"
)
NO_GGUF = f"reading GGUF files needs gguf, which is not installed; run: {GET_GGUF}"
NO_OCR = (
    f"reading arbitrary text on a screen needs RapidOCR, which is not installed; run: {GET_OCR}"
)

_OF_MODELS = ("safetensors", "tokenizers", "torch", "transformers")

_EXTRAS = {
    "av": "stream",
    "bitsandbytes": "qlora",
    "browsergym": "browsergym",
    "datasets": "data",
    "fastapi": "page",
    "flash_attn": "flash",
    "gguf": "gguf",
    "httpx2": "remote",
    "math_verify": "math",
    "matplotlib": "plot",
    "minari": "minari",
    "minigrid": "minigrid",
    "miniwob": "miniwob",
    "mlflow": "mlflow",
    "onnxruntime": "ocr",
    "peft": "lora",
    "pettingzoo": "pettingzoo",
    "playwright": "browser",
    "ppadb": "ppadb",
    "pyarrow": "data",
    "pygame": "toy-text",
    "rapidocr": "ocr",
    "ray": "ray",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "uvicorn": "page",
    "wandb": "wandb",
    "websockets": "page",
} | dict.fromkeys(_OF_MODELS, "train")
"""Maps a package's import name to the extra of agentrl that installs it."""


def installation_of(package: str | None) -> str | None:
    """Return the command that installs a package through an extra; None if no extra contains it.

    Args:
        package: import name of the package or of a module in it.
    """
    extra = _EXTRAS.get((package or "").partition(".")[0])
    return extra and f"pip install 'agentrl-screens[{extra}]'"


def missing(packages: Mapping[str, str]) -> list[str]:
    """Return the messages for packages that are not installed.

    Args:
        packages: maps import names to messages.
    """
    return [message for name, message in packages.items() if find_spec(name) is None]


def advice_on_import(error: BaseException | None) -> str | None:
    """Suggest an installation if an import failed for lack of a package of an extra."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    if error is None or (command := installation_of(error.name)) is None:
        return None
    return f"needs {error.name}, which is not installed; run: {command}"


def missing_for_models(launcher: str) -> tuple[list[str], list[str]]:
    """Return messages about missing packages that a local model needs to run.

    Args:
        launcher: the configuration's `rollout.launcher`.

    Returns:
        The messages about model libraries, and the messages about the launcher.
    """
    absent = [name for name in _OF_MODELS if find_spec(name) is None]
    models = f"models need packages that are not installed ({', '.join(absent)}); run: {GET_MODELS}"
    return [models] if absent else [], missing({"ray": NO_RAY}) if launcher == "ray" else []

"""agentrl trains vision-language agents that act on screens.

Importing this package loads neither torch nor Ray: the names below are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "train": "agentrl.training.trainer.train:train",
    "evaluate": "agentrl.training.evaluation.evaluate:evaluate",
    "make": "agentrl.env:make",
    "make_translator": "agentrl.env:make_translator",
    "register": "agentrl.env:register",
    "load_config": "agentrl.config:load",
}

__all__ = ["__version__", "evaluate", "load_config", "make", "make_translator", "register", "train"]

if TYPE_CHECKING:
    from agentrl.config import load as load_config
    from agentrl.env import make, make_translator, register
    from agentrl.training.evaluation.evaluate import evaluate
    from agentrl.training.trainer.train import train


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'agentrl' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)

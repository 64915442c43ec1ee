"""Train vision-language agents that act on screens.

Run jobs
    train            run a whole training job, or resume one
    sft              fine-tune a model on conversations
    dpo              train a model on pairs of answers
    train_reward_model
                     train a reward model on pairs of answers
    run_pipeline     run several jobs in sequence
    infer            answer the rows of a data set with a model
    evaluate         play episodes on held-out seeds: an `Evaluation`
    load_config      a `Config` from a YAML file or packaged name, with overrides
    Config           all settings of a job, by section

Environments
    register         register an environment under an id
    make             create an environment
    make_translator  create its translator
    Translator       turns observations into messages, and replies into actions
    Player           a scripted player
    Observation      what an environment shows: images and text
    Message          one message of the conversation with the model
    ActionError      raised for a reply that is not an action

Recorded episodes
    replay.open      open a `Run`: its episodes, metrics, config, summary and model
    Run              a recorded run, as `train` returns it
    Episode, Turn    one episode, and one turn of it
    ScoredEpisode    an episode with its rewards
    Outcome          how an episode ended

Phones
    open_device      connect to a phone by its serial
    Device           a phone: screenshot, tap, swipe, text

Errors
    AgentRLError     base of all errors: ConfigError, ActionError, WorldError

Importing this package loads neither torch nor Ray; names are resolved on first use.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl._version import __version__
from agentrl.policies import broken_torchvision

if TYPE_CHECKING:
    from agentrl import replay
    from agentrl.actions.players.player import Player
    from agentrl.actions.translator import Translator
    from agentrl.config import Config
    from agentrl.config import load as load_config
    from agentrl.devices import Device, open_device
    from agentrl.env_registry import make, make_translator, register
    from agentrl.errors import ActionError, AgentRLError, ConfigError, WorldError
    from agentrl.replay import Run
    from agentrl.training.evaluation.evaluate import evaluate
    from agentrl.training.evaluation.held_out_evaluation import Evaluation
    from agentrl.training.inference.batch_inference import infer
    from agentrl.training.offline.finetuning_methods import dpo, sft, train_reward_model
    from agentrl.training.pipeline import run_pipeline
    from agentrl.training.trainer.train import train
    from agentrl.types import Episode, Message, Observation, Outcome, ScoredEpisode, Turn

__all__ = [
    "ActionError",
    "AgentRLError",
    "Config",
    "ConfigError",
    "Device",
    "Episode",
    "Evaluation",
    "Message",
    "Observation",
    "Outcome",
    "Player",
    "Run",
    "ScoredEpisode",
    "Translator",
    "Turn",
    "WorldError",
    "__version__",
    "dpo",
    "evaluate",
    "infer",
    "load_config",
    "make",
    "make_translator",
    "open_device",
    "register",
    "replay",
    "run_pipeline",
    "sft",
    "train",
    "train_reward_model",
]

# Set this before torch is loaded. Otherwise, its threads spin while waiting, and compete for the
# cores of a machine that also runs phones and an engine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

broken_torchvision.PatchOnImport.install()

_MODULES = {
    "agentrl.actions.players.player": ("Player",),
    "agentrl.actions.translator": ("Translator",),
    "agentrl.config": ("Config",),
    "agentrl.devices": ("Device", "open_device"),
    "agentrl.env_registry": ("make", "make_translator", "register"),
    "agentrl.errors": ("ActionError", "AgentRLError", "ConfigError", "WorldError"),
    "agentrl.replay": ("Run",),
    "agentrl.training.evaluation.evaluate": ("evaluate",),
    "agentrl.training.evaluation.held_out_evaluation": ("Evaluation",),
    "agentrl.training.offline.finetuning_methods": ("dpo", "sft", "train_reward_model"),
    "agentrl.training.inference.batch_inference": ("infer",),
    "agentrl.training.pipeline": ("run_pipeline",),
    "agentrl.training.trainer.train": ("train",),
    "agentrl.types": ("Episode", "Message", "Observation", "Outcome", "ScoredEpisode", "Turn"),
}
_LAZY = {name: (module, name) for module, names in _MODULES.items() for name in names}
_LAZY["load_config"] = ("agentrl.config", "load")


def __getattr__(name: str) -> Any:
    if name == "replay":
        return import_module("agentrl.replay")
    if name not in _LAZY:
        raise AttributeError(f"module 'agentrl' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)

"""One tree of settings for a whole job."""

from agentrl.config.check import History, parse_history, validate
from agentrl.config.load import find, from_dict, is_packaged, load, resolve, to_dict, to_yaml
from agentrl.config.tree import (
    AlgorithmConfig,
    CheckpointConfig,
    Config,
    DeadlinesConfig,
    DevicesConfig,
    EnvConfig,
    EvalConfig,
    ModelConfig,
    OptimConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    WarmStartConfig,
    WrapperConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "DeadlinesConfig",
    "DevicesConfig",
    "EnvConfig",
    "EvalConfig",
    "History",
    "ModelConfig",
    "OptimConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "TrainConfig",
    "WarmStartConfig",
    "WrapperConfig",
    "find",
    "from_dict",
    "is_packaged",
    "load",
    "parse_history",
    "resolve",
    "to_dict",
    "to_yaml",
    "validate",
]

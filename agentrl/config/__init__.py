"""One tree of settings for a whole job."""

from agentrl.config.algorithm_presets import DEFAULTS, PRESETS, Preset, settings_of
from agentrl.config.algorithm_settings import AlgorithmConfig
from agentrl.config.device_settings import DeadlinesConfig, DevicesConfig
from agentrl.config.env_settings import (
    EnvConfig,
    EvalConfig,
    History,
    RewardConfig,
    WrapperConfig,
    parse_history,
)
from agentrl.config.loading import (
    arguments,
    find,
    from_dict,
    is_packaged,
    load,
    resolve,
    to_yaml,
    unreadable,
)
from agentrl.config.logger_settings import LoggerConfig, parse_loggers
from agentrl.config.model_settings import LoraConfig, ModelConfig
from agentrl.config.rollout_settings import EndpointConfig, RolloutConfig
from agentrl.config.sections import CheckpointConfig, Config, RunConfig
from agentrl.config.targets import target_of
from agentrl.config.training_settings import (
    OptimConfig,
    RecordedFilterConfig,
    TrainConfig,
    WarmStartConfig,
)

__all__ = [
    "DEFAULTS",
    "PRESETS",
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "DeadlinesConfig",
    "DevicesConfig",
    "EndpointConfig",
    "EnvConfig",
    "EvalConfig",
    "History",
    "LoggerConfig",
    "LoraConfig",
    "ModelConfig",
    "OptimConfig",
    "Preset",
    "RecordedFilterConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "TrainConfig",
    "WarmStartConfig",
    "WrapperConfig",
    "arguments",
    "find",
    "from_dict",
    "is_packaged",
    "load",
    "parse_history",
    "parse_loggers",
    "resolve",
    "settings_of",
    "target_of",
    "to_yaml",
    "unreadable",
]

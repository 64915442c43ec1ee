"""The settings of a whole job, as one tree."""

from agentrl.config.algorithm_settings import (
    Aggregate,
    AlgorithmConfig,
    CriticConfig,
    EntropyControlConfig,
    GroupFilterConfig,
    ImplicitRewardConfig,
    ImportanceConfig,
    KLConfig,
    LossConfig,
    OverlongConfig,
)
from agentrl.config.changed_settings import changed_settings, flat_settings
from agentrl.config.defaults_by_name import algorithm_defaults, sampler_defaults
from agentrl.config.device_settings import DeadlinesConfig, DevicesConfig
from agentrl.config.env_settings import (
    EnvConfig,
    History,
    HorizonConfig,
    StartConfig,
    WrapperConfig,
    parse_history,
)
from agentrl.config.evaluation_settings import RINGS, EvalConfig, RingsConfig
from agentrl.config.finetuning_settings import (
    DataConfig,
    DPOConfig,
    FinetuningConfig,
    RewardModelConfig,
    SFTConfig,
)
from agentrl.config.job_config import (
    CheckpointConfig,
    Config,
    LoggerConfig,
    RunConfig,
    parse_loggers,
)
from agentrl.config.loading import (
    algorithm_config,
    arguments,
    find,
    from_dict,
    is_packaged,
    load,
    load_merged,
    load_rewards,
    packaged_names,
    read_yaml,
    resolve,
    to_yaml,
    with_absolute_paths,
)
from agentrl.config.model_settings import LoraConfig, ModelConfig
from agentrl.config.reward_settings import RewardAuditConfig, RewardConfig
from agentrl.config.rollout_settings import EndpointConfig, EngineCheckConfig, RolloutConfig
from agentrl.config.task_settings import MixtureConfig, SamplerConfig
from agentrl.config.training_settings import (
    OptimConfig,
    RecordedFilterConfig,
    TrainConfig,
    WarmStartConfig,
)

__all__ = [
    "RINGS",
    "Aggregate",
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "CriticConfig",
    "DPOConfig",
    "DataConfig",
    "DeadlinesConfig",
    "DevicesConfig",
    "EndpointConfig",
    "EngineCheckConfig",
    "EntropyControlConfig",
    "EnvConfig",
    "EvalConfig",
    "FinetuningConfig",
    "GroupFilterConfig",
    "History",
    "HorizonConfig",
    "ImplicitRewardConfig",
    "ImportanceConfig",
    "KLConfig",
    "LoggerConfig",
    "LoraConfig",
    "LossConfig",
    "MixtureConfig",
    "ModelConfig",
    "OptimConfig",
    "OverlongConfig",
    "RecordedFilterConfig",
    "RewardAuditConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RingsConfig",
    "RolloutConfig",
    "RunConfig",
    "SFTConfig",
    "SamplerConfig",
    "StartConfig",
    "TrainConfig",
    "WarmStartConfig",
    "WrapperConfig",
    "algorithm_config",
    "algorithm_defaults",
    "arguments",
    "changed_settings",
    "find",
    "flat_settings",
    "from_dict",
    "is_packaged",
    "load",
    "load_merged",
    "load_rewards",
    "packaged_names",
    "parse_history",
    "parse_loggers",
    "read_yaml",
    "resolve",
    "sampler_defaults",
    "to_yaml",
    "with_absolute_paths",
]

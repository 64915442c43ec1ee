"""Every kind of thing that users can provide, and the setting that selects it."""

from agentrl.registry import ExtensionPoint

ALGORITHM = ExtensionPoint(
    kind="algorithm",
    setting="algorithm.name",
    builtin="agentrl.algorithms",
    base="agentrl.algorithms.core.algorithm:Algorithm",
)

LOSS = ExtensionPoint(
    kind="loss",
    setting="algorithm.loss.name",
    builtin="agentrl.algorithms.losses",
    base="agentrl.algorithms.core.policy_loss:PolicyLoss",
)

DIALECT = ExtensionPoint(
    kind="dialect",
    setting="env.dialect",
    builtin="agentrl.actions.dialects",
    base="agentrl.actions.dialect:Dialect",
)

LOGGER = ExtensionPoint(
    kind="logger",
    setting="logging",
    builtin="agentrl.training.monitoring.loggers",
    base="agentrl.training.monitoring.logger:Logger",
)

DRIVER = ExtensionPoint(
    kind="driver",
    setting="devices.driver",
    builtin="agentrl.devices.adb.drivers",
    base="agentrl.devices.adb.adb_socket:AdbSocket",
)

CAPTURE = ExtensionPoint(
    kind="capture",
    setting="devices.capture",
    builtin={
        "raw": "agentrl.devices.capture.screencap:RawCapture",
        "png": "agentrl.devices.capture.screencap:PngCapture",
        "framebuffer": "agentrl.devices.capture.framebuffer:FramebufferCapture",
        "stream": "agentrl.devices.capture.h264_stream:StreamCapture",
    },
    base="agentrl.devices.capture:Capture",
)

ENV = ExtensionPoint(kind="env", setting="env.id", builtin="agentrl.env:env_targets")

TRANSLATOR = ExtensionPoint(
    kind="translator",
    setting="env.translator_class",
    builtin="agentrl.env:translator_targets",
)

PLAYER = ExtensionPoint(kind="player", setting="env.players", builtin="agentrl.env:player_targets")

REWARD = ExtensionPoint(
    kind="reward",
    setting="rewards",
    builtin="agentrl.rollout.reward_names:reward_targets",
)

SAMPLER = ExtensionPoint(
    kind="sampler",
    setting="sampling.name",
    builtin="agentrl.training.sampling.samplers",
    base="agentrl.training.sampling.task_sampler:TaskSampler",
)

SUITE = ExtensionPoint(
    kind="suite",
    setting="eval.suite",
    builtin="agentrl.training.evaluation.suite_files:packaged_suites",
    base="agentrl.training.evaluation.suite:EvaluationSuite",
    from_yaml="agentrl.training.evaluation.suite_files:read_suite",
)

MODEL = ExtensionPoint(
    kind="model",
    setting="model.adapter",
    builtin="agentrl.policies.models.families",
    base="agentrl.policies.models.model_adapter:ModelAdapter",
)

CHAT = ExtensionPoint(
    kind="chat",
    setting="model.chat",
    builtin="agentrl.policies.chat.formats",
    base="agentrl.policies.chat.chat_format:ChatFormat",
)

ENGINE = ExtensionPoint(
    kind="engine",
    setting="rollout.engine",
    builtin={
        "hf": "agentrl.policies.engines.hf_engine:HFEngine",
        "remote": "agentrl.policies.engines.remote_engine:RemoteEngine",
        "sglang": "agentrl.policies.engines.sglang_engine:SGLangEngine",
        "vllm": "agentrl.policies.engines.vllm_engine:VLLMEngine",
    },
    base="agentrl.policies.engines.engine:Engine",
)

TRANSPORT = ExtensionPoint(
    kind="transport",
    setting="train.weight_transfer",
    builtin="agentrl.weight_sync.transports",
    base="agentrl.weight_sync.weight_transport:WeightTransport",
)

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

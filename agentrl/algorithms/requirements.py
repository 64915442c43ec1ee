"""Which models an algorithm asks beside the policy."""

from agentrl.config import AlgorithmConfig


def critic(config: AlgorithmConfig) -> bool:
    """Whether states are valued."""
    return config.estimator in ("gae", "turn_gae")


def implicit(config: AlgorithmConfig) -> bool:
    """Whether an implicit process reward is learned."""
    return config.estimator == "prime"


def reference(config: AlgorithmConfig) -> bool:
    """Whether the model at the start of reinforcement is kept."""
    return config.kl != "none" or implicit(config)


def correction(config: AlgorithmConfig) -> bool:
    """Whether the learner's own log-probabilities before the update are computed."""
    return config.correction != "none"


def judgement(config: AlgorithmConfig) -> bool:
    """Whether anybody is asked before tokens can be credited."""
    return critic(config) or implicit(config) or config.kl == "reward"


def greedy(config: AlgorithmConfig) -> bool:
    """Whether the greedy policy plays each seed as well."""
    return config.estimator == "remax"

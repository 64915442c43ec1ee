"""What an algorithm requires besides the policy: a critic, a reference, greedy episodes, ..."""

from agentrl.config import AlgorithmConfig


def critic(config: AlgorithmConfig) -> bool:
    """Whether a critic values states."""
    return config.estimator in ("gae", "turn_gae")


def implicit(config: AlgorithmConfig) -> bool:
    """Whether an implicit process reward model is trained."""
    return config.estimator == "prime"


def reference(config: AlgorithmConfig) -> bool:
    """Whether a frozen copy of the policy is kept, as it was when reinforcement began."""
    return config.kl != "none" or implicit(config)


def correction(config: AlgorithmConfig) -> bool:
    """Whether the learner's log-probabilities before the update are needed."""
    return config.importance_correction != "none"


def judgement(config: AlgorithmConfig) -> bool:
    """Whether the algorithm needs model outputs before advantages can be computed."""
    return critic(config) or implicit(config) or config.kl == "reward"


def greedy(config: AlgorithmConfig) -> bool:
    """Whether the greedy policy plays each seed, too."""
    return config.estimator == "remax"

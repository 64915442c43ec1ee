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


def old_logprobs(config: AlgorithmConfig) -> bool:
    """Whether the learner's log-probabilities before the update are needed."""
    return config.importance_correction != "none" or config.kl == "reward"


def token_scores(config: AlgorithmConfig) -> bool:
    """Whether any model has to score the sampled tokens before the update."""
    return critic(config) or reference(config) or old_logprobs(config)


def greedy(config: AlgorithmConfig) -> bool:
    """Whether the greedy policy plays each seed, too."""
    return config.estimator == "remax"

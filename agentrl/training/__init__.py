"""Training: the learner, batching, sampling, checkpoints, evaluation and the training loop."""

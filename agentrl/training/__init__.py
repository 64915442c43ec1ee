"""Algorithms, batching, the learner, checkpoints, evaluation and the loop over all of them."""

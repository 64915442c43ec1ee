"""Checkpoints for tests, saved without a training loop."""

from agentrl.training.checkpoints import checkpoint_store


def save_checkpoint(run, step, learner, trainer, *, keep, best=False):
    """Write a checkpoint as the training loop does, and return its folder."""
    folder = checkpoint_store.begin(run, step)
    with checkpoint_store.removed_if_failed(folder):
        learner.save_state(checkpoint_store.learner_state_of(folder))
        checkpoint_store.complete(folder, trainer, keep=keep, best=best)
    return folder

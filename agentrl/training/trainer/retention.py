"""Keep what a run records within `run.keep_gb`, beside the training."""

import logging
import threading
from pathlib import Path

from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.replay.pruning import GB, Pruned, Pruner, grace_s

log = logging.getLogger(__name__)


class Retention:
    """Prunes a run in a thread of its own, one pruning at a time.

    A pruning that fails is a warning, and the next one begins anew.

    Args:
        run: the run's folder.
        config: the whole job; without `run.keep_gb` nothing is ever removed.
    """

    def __init__(self, run: Path, config: Config) -> None:
        self._run = run
        self._keep_bytes = None if config.run.keep_gb is None else config.run.keep_gb * GB
        self._grace_s = grace_s(config.rollout)
        self._pruner: Pruner | None = None
        self._thread: threading.Thread | None = None
        self._said = False

    def begin(self) -> None:
        """Begin to prune, unless that is under way already; does not wait."""
        if self._keep_bytes is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(
            target=self._prune, args=(self._keep_bytes, self._grace_s), name="prune", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Prune a last time; nobody records any more, so that nothing has to wait."""
        if self._keep_bytes is None:
            return
        if self._thread is not None:
            self._thread.join()
        self._prune(self._keep_bytes, 0.0)

    def _prune(self, keep_bytes: float, grace_s: float) -> None:
        pruner, self._pruner = self._pruner, None
        try:
            pruner = pruner or Pruner(self._run)
            pruned = pruner.prune(keep_bytes, grace_s)
        except (ConfigError, OSError) as error:
            log.warning("retention: pruning failed, and begins anew after the next step: %s", error)
            return
        self._pruner = pruner
        self._tell(pruned)

    def _tell(self, pruned: Pruned) -> None:
        if pruned.episodes or pruned.frames:
            log.info(
                "retention: removed %d training episodes and %d frames (%.3f GB); %d episodes "
                "take %.3f GB", len(pruned.episodes), pruned.frames, pruned.bytes / GB,
                pruned.kept, pruned.kept_bytes / GB,
            )  # fmt: skip
        if pruned.is_short and not self._said:
            self._said = True
            log.warning("%s", short_of_room(pruned))


def short_of_room(pruned: Pruned) -> str:
    """Why more is kept than was to be."""
    return (
        f"evaluations and demonstrations alone take {pruned.kept_bytes / GB:.3f} GB of the "
        f"{pruned.keep_bytes / GB:g} GB to keep, and are never removed: no training episode is left"
    )

"""Remove old recordings in the background, to keep a run within `run.keep_gb`."""

import logging
import threading
from pathlib import Path

from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError
from agentrl.replay.pruning import GB, Pruned, Pruner, grace_s

log = logging.getLogger(__name__)


class Retention:
    """Prunes a run in a background thread, one pass at a time.

    A pass that fails is a warning; the next one starts from scratch.

    Args:
        run: the run's folder.
        keep_gb: the limit in GB (`run.keep_gb`); None removes nothing.
        rollout: its deadlines bound how long an episode may still be in use.
    """

    def __init__(self, run: Path, keep_gb: float | None, rollout: RolloutConfig) -> None:
        self._run = run
        self._keep_bytes = None if keep_gb is None else keep_gb * GB
        self._grace_s = grace_s(rollout)
        self._pruner: Pruner | None = None
        self._thread: threading.Thread | None = None
        self._warned = False

    def begin(self) -> None:
        """Start a pass unless one is running; does not wait for it."""
        if self._keep_bytes is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(
            target=self._prune, args=(self._keep_bytes, self._grace_s), name="prune", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Prune a last time, without a grace period, as recording has ended."""
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
            log.warning("retention: pruning failed, will retry after the next step: %s", error)
            return
        self._pruner = pruner
        self._report(pruned)

    def _report(self, pruned: Pruned) -> None:
        if pruned.episodes or pruned.frames:
            log.info(
                "retention: removed %d training episodes and %d frames (%.3f GB); the remaining %d "
                "episodes use %.3f GB", len(pruned.episodes), pruned.frames, pruned.bytes / GB,
                pruned.kept, pruned.kept_bytes / GB,
            )  # fmt: skip
        if pruned.is_short and not self._warned:
            self._warned = True
            log.warning("%s", size_limit_warning(pruned))


def size_limit_warning(pruned: Pruned) -> str:
    """Why a run uses more than its limit."""
    return (
        f"evaluations and demonstrations, which are never removed, use {pruned.kept_bytes / GB:.3f}"
        f" GB of {pruned.keep_bytes / GB:g} GB: no training episode is left"
    )

"""A folder with the built-in tiny model, shared by all checks of a process."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from agentrl.policies import tiny_model


@cache
def tiny_folder(seed: int = 0) -> Path:
    """Return the tiny model's read-only folder, built once per process and removed at exit.

    Args:
        seed: seed of its weights.
    """
    scratch = tempfile.mkdtemp(prefix="agentrl-check-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return tiny_model.build(Path(scratch) / "tiny", seed)

"""The built-in tiny model as a folder that all checks of a process share."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from agentrl.policies import tiny_model


@cache
def tiny_folder(seed: int = 0) -> Path:
    """The folder of the tiny model, built once and removed at exit; not to be written to.

    Args:
        seed: seed of its weights.
    """
    scratch = tempfile.mkdtemp(prefix="agentrl-check-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return tiny_model.build(Path(scratch) / "tiny", seed)

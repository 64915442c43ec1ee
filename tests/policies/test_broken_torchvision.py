import os
import subprocess
import sys
from pathlib import Path

import pytest

DATASETS = """
import datasets
import transformers
print(len(datasets.Dataset.from_list([{"a": 1}])))
"""


def run_script(code: str, folder: Path) -> str:
    """The output of a plain script, which does not see this repository."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=300, cwd=folder, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_plain_script_imports_image_processors_after_setup(tmp_path: Path) -> None:
    code = "from transformers import Qwen2_5_VLProcessor; import torchvision; print('imported')"
    assert run_script(code, tmp_path) == "imported\n"


def test_looking_for_transformers_imports_neither_it_nor_torch(tmp_path: Path) -> None:
    code = """
import agentrl, sys
from importlib.util import find_spec
print(find_spec("transformers") is not None, {"torch", "transformers"} & sys.modules.keys())
"""
    assert run_script(code, tmp_path) == "True set()\n"


@pytest.mark.slow
def test_datasets_works_in_any_import_order(tmp_path: Path) -> None:
    for code in (DATASETS, DATASETS.replace("import datasets\n", "import torch, datasets\n", 1)):
        assert run_script(code, tmp_path) == "1\n"

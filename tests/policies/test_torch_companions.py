import subprocess
import sys

import pytest

CODE = """
import datasets
from agentrl.policies import torch_companions
torch_companions.patch_broken_imports()
import torch
print(len(datasets.Dataset.from_list([{"a": 1}])))
"""


@pytest.mark.slow
def test_datasets_works_in_any_import_order():
    for code in (
        CODE,
        CODE.replace("import datasets\n", "", 1).replace("\nimport torch\n", "\nimport datasets\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
        )
        assert done.stdout == "1\n", done.stderr

"""The checks of weight transports, on the example, on built-ins, and on broken copies."""

import itertools
from pathlib import Path

import pytest

from agentrl.check.extensions import transport as checks
from agentrl.errors import EngineError
from agentrl.extension_points import TRANSPORT

pytestmark = [pytest.mark.filterwarnings("default")]
EXAMPLE = Path(__file__).parents[2] / "examples" / "extend" / "transport.py"
NUMBERS = itertools.count()
CHECKS = [
    checks.check_needs,
    checks.check_weights_arrive,
    checks.check_all_ranks,
    checks.check_damaged_update,
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", [f"{EXAMPLE}:DeltaTransport", "file"])
def test_the_example_and_the_file_pass(name, check):
    check(TRANSPORT.resolve(name))


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("check", CHECKS)
def test_vllms_shared_memory_passes(check):
    pytest.importorskip("vllm")
    check(TRANSPORT.resolve("shared"))


@pytest.mark.parametrize(
    ("right", "wrong", "check", "words"),
    [
        ("delta.tobytes()", "bits.tobytes()", checks.check_weights_arrive, "version 2|finite"),
        ("bits ^= self._last[name]", "pass", checks.check_weights_arrive, "version 2|finite"),
        ("                continue", "                return", checks.check_all_ranks, "1 of 2"),
        ("if rank > 0", "if rank < 0", checks.check_all_ranks, "other than 0"),
        (
            "await engine.load_weights",
            "(lambda *_: None)",
            checks.check_weights_arrive,
            "version 1",
        ),
        ("digest is not None and", "False and", checks.check_damaged_update, "checksum `digest`"),
    ],
)
def test_a_broken_copy_fails_with_the_reason(tmp_path, right, wrong, check, words):
    head, found, tail = EXAMPLE.read_text().partition(right)
    assert found
    path = tmp_path / f"broken_transport_{next(NUMBERS)}.py"
    path.write_text(head + wrong + tail)
    with pytest.raises((AssertionError, EngineError), match=words):
        check(TRANSPORT.resolve(f"{path}:DeltaTransport"))

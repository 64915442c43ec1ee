import numpy as np

from agentrl.replay.plain_json import to_plain
from agentrl.types import Outcome


def test_foreign_values_become_plain_json() -> None:
    value = {"a": np.float32(0.5), 2: np.arange(2), "n": float("nan"), "o": Outcome.TIMEOUT}
    expected = {"a": 0.5, "2": [0, 1], "n": "nan", "o": "timeout"}
    assert to_plain(value) == expected
    assert to_plain(b"\x00") == "b'\\x00'"

import pytest

from agentrl.errors import ConfigError
from agentrl.rollout.worlds import _part


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("virtual:7", ["virtual:4", "virtual:3"]),
        (["a", "b:1", "c"], [["a", "c"], ["b:1"]]),
    ],
)
def test_every_phone_goes_to_one_process(source, parts):
    assert [_part(source, k, 2) for k in range(2)] == parts


@pytest.mark.parametrize("source", ["virtual", "virtual:1", "192.168.1.7:5555", ["a"]])
def test_more_processes_than_phones_are_refused(source):
    with pytest.raises(ConfigError, match="fewer phones"):
        _part(source, 0, 2)


def test_one_process_takes_the_source_as_it_is():
    assert _part("192.168.1.7:5555", 0, 1) == "192.168.1.7:5555"

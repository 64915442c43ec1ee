"""Every built-in dialect passes the checks that users run on their own."""

import pytest

from agentrl.check.extensions import dialect as checks
from agentrl.extension_points import DIALECT

NAMES = [one.name for one in DIALECT.extensions() if one.origin == "agentrl"]
CHECKS = [check for name, check in vars(checks).items() if name.startswith("check_")]
CHECKS = [check for check in CHECKS if check.__module__ == checks.__name__]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_dialect_passes(name, check) -> None:
    check(DIALECT.resolve(name))

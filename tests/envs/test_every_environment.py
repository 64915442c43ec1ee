"""Checks of every built-in environment."""

from pathlib import Path

import gymnasium
import pytest

from agentrl import env_registry
from agentrl.check.environments import check_environment
from agentrl.check.support.random_episodes import equal_values
from agentrl.config import EnvConfig

# Other tests, if imported before, have registered their environments, too.
OURS = [
    game for game in env_registry.registered_envs() if str(game.entry_point).startswith("agentrl.")
]
ON_PHONES = {game.id for game in OURS if game.app is not None}
SLOW = pytest.mark.slow, pytest.mark.adb, pytest.mark.timeout(600)
IDS = [pytest.param(g.id, marks=SLOW if g.id in ON_PHONES else ()) for g in OURS]


@pytest.mark.parametrize("id", IDS)
def test_a_built_in_environment_passes_all_checks(
    id: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if id in ON_PHONES:
        request.getfixturevalue("adb_server")
    (tmp_path / "index.html").write_text("<!doctype html><h1>page</h1>")
    kwargs = {"root": str(tmp_path)} if id == "WebApp-v0" else {}
    found = list(check_environment(EnvConfig(id=id, kwargs=kwargs), steps=2, deadline_s=200))
    assert not [one for one in found if one.state == "wrong"]


@pytest.mark.parametrize(
    ("mode", "settings"),
    # Gymnasium's shared memory does not return text unchanged.
    [("sync", {}), ("async", {"shared_memory": False})],
)
@pytest.mark.parametrize("id", ["Sokoban-v0", "QA-v0"])
def test_it_works_in_vector_environments(id: str, mode: str, settings: dict[str, bool]) -> None:
    env_registry.find_env(id)
    both = gymnasium.make_vec(id, num_envs=2, vectorization_mode=mode, vector_kwargs=settings)
    alone = gymnasium.make(id, disable_env_checker=True)
    try:
        seen, _ = both.reset(seed=[3, 4])
        ours, _ = alone.reset(seed=3)
        first = {key: value[0] for key, value in seen.items()} if id == "QA-v0" else seen[0]
        assert equal_values(first, ours)
        both.step(both.action_space.sample())
    finally:
        both.close()
        alone.close()

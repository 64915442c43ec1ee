import pytest

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.rollout.collector import tickets_of_step
from agentrl.training import seeds


def made(*overrides: str) -> Config:
    return configuration.resolve(Config(), ["rollout.groups=3", "rollout.group_size=4", *overrides])


def played(config: Config, step: int) -> list[list[int]]:
    tickets = tickets_of_step("train", step, seeds.training(config, step), 4)
    assert [(t.group, t.member) for t in tickets] == [(g, m) for g in range(3) for m in range(4)]
    return [[t.seed for t in tickets if t.group == group] for group in range(3)]


def test_a_group_shares_its_seed_and_no_step_plays_another_ones() -> None:
    first, second = (played(made(), step) for step in (1, 2))
    assert all(len(set(group)) == 1 for group in first + second)
    assert len({group[0] for group in first + second}) == 6


def test_episodes_have_seeds_of_their_own_where_they_are_asked_for() -> None:
    groups = [g for step in (1, 2) for g in played(made("rollout.seed_per=episode"), step)]
    assert len({seed for group in groups for seed in group}) == 24


@pytest.mark.parametrize("per", ["group", "episode"])
def test_no_seed_is_played_by_two_runs_or_for_two_ends(per: str) -> None:
    of = [made(f"rollout.seed_per={per}", f"seed={seed}") for seed in (0, 1)]
    trained = [{s for step in (1, 50) for g in played(one, step) for s in g} for one in of]
    shown = [set(seeds.demonstration(one, 50)) for one in of]
    held_out = set(seeds.evaluation(of[0], 100))
    assert not set.intersection(*trained)
    assert not any(a & b for a in trained for b in (*shown, held_out))


def test_more_seeds_than_there_are_is_refused() -> None:
    many = ["train.steps=1000000"]
    seeds.check_seeds(made(*many))
    with pytest.raises(ConfigError, match="more than"):
        seeds.check_seeds(made(*many, "rollout.seed_per=episode"))

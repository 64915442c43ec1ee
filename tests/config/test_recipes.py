"""The examples of other trainers in configs/recipes: dry runs, and tiny runs over drawn rows."""

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

import agentrl
from agentrl import config as configuration
from agentrl.cli import run
from agentrl.data.grading import final_answer
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rewards.scoring import RewardFunctions
from tests.rollout.rewards.test_reward_calls import TICKET
from tests.rollout.test_collector import episode_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "configs" / "recipes" / "README.md"
RECIPES = sorted((ROOT / "configs" / "recipes").glob("*.yaml"))
ROWS = {
    "easyr1_geo3k_grpo": "easyr1", "easyr1_geo3k_dapo": "easyr1", "easyr1_math_grpo": "math",
    "easyr1_math_dapo": "math", "easyr1_multi_image": "multi_image", "easyr1_number_game": "digits",
    "r1v_counting": "r1v", "r1v_geoqa": "r1v", "r1v_sft": "r1v",
    "verl_gsm8k_ppo": "gsm8k", "verl_gsm8k_grpo": "gsm8k", "verl_gsm8k_tools": "gsm8k",
    "lmm_r1_fre_text": "lmm_r1", "lmm_r1_fre_multi": "lmm_r1", "lmm_r1_mgt_geo": "lmm_r1",
    "lmm_r1_mgt_perception": "lmm_r1", "lmm_r1_direct_rl": "lmm_r1",
    "lmm_r1_dpo": "pairs", "lmm_r1_rm": "pairs",
}  # fmt: skip
"""The format of each recipe's rows, as examples/draw_rows.py writes it."""
COMMANDS = {"r1v_sft": "sft", "lmm_r1_dpo": "dpo", "lmm_r1_rm": "train-reward-model"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    draw = runpy.run_path(str(ROOT / "examples" / "draw_rows.py"))["draw"]
    for kind in set(ROWS.values()):
        draw(kind, folder / f"{kind}.jsonl")
    return folder


def overrides(recipe, folder):
    """What replaces the model and the data set of a recipe."""
    data = folder / f"{ROWS[recipe]}.jsonl"
    given = ["model.path=tiny", "model.image_size=[84, 84]", "logging=[console]"]
    if recipe in COMMANDS:
        section = COMMANDS[recipe].removeprefix("train-").replace("-", "_")
        return [*given, f"{section}.train.data={data}"]
    given += ["train.sequence_parallel=1", f"env.kwargs.data={data}", f"eval.kwargs.data={data}"]
    if recipe == "verl_gsm8k_grpo":
        given += ["mixture=[]"]
    return [*given, "env.kwargs.name=null"] if recipe.startswith("verl") else given


def tiny():
    """The overrides that the page documents for a tiny run."""
    found = re.search(r"```bash\nTINY='(.*?)'", PAGE.read_text(), re.DOTALL)
    return found[1].split()


def test_every_recipe_says_where_it_comes_from_and_has_rows():
    assert {file.stem for file in RECIPES} == set(ROWS)
    page = PAGE.read_text()
    for file in RECIPES:
        head = file.read_text().partition("\nmodel:")[0]
        assert re.search(r"\([\w-]+/[\w-]+( at \w+\^)?\), \S+\.(sh|rst)", head), file
        assert "Different here" in head, file
        assert (
            f"| `{ROWS[file.stem]}` |" in page.partition(f"| `{file.stem}` ")[2].partition("\n")[0]
        )


def test_recipes_are_found_by_their_names():
    assert "recipes/r1v_geoqa" in configuration.packaged_names()
    assert configuration.load("recipes/r1v_geoqa").rollout.groups == 16


FORMS = {
    "easyr1": r"<think>so</think> \boxed{%s}", "multi_image": r"<think>so</think> \boxed{%s}",
    "math": "So it is.\nAnswer: %s", "digits": "%s", "r1v": "<think>so</think><answer>%s</answer>",
    "gsm8k": "So it is.\n#### %s", "lmm_r1": r"<think>so</think><answer>$\boxed{%s}$</answer>",
}  # fmt: skip
"""How a reply to each format has to be written for the highest reward."""


def quick_or_slow(quick, names):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


ANSWERED = [name for name in ROWS if name not in COMMANDS and name != "verl_gsm8k_tools"]


@pytest.mark.parametrize(
    "recipe", quick_or_slow(["easyr1_number_game", "lmm_r1_fre_text"], ANSWERED)
)
def test_a_recipe_rewards_the_right_answer_and_not_a_wrong_one(recipe, drawn):
    job = configuration.load(f"recipes/{recipe}", overrides(recipe, drawn))
    translator = open_translator(resolve_env(job.env))
    rewards = RewardFunctions(job.rewards, 30.0)
    form = FORMS["easyr1" if recipe == "easyr1_math_grpo" else ROWS[recipe]]

    def reward(answer):
        env = agentrl.make(job.env.id, **job.env.kwargs)
        shown, reset_info = env.reset(seed=0)
        reply = form % (answer or final_answer(reset_info["ground_truth"]))
        action = translator.to_action(reply)
        *_, info = env.step(action)
        episode = episode_of(TICKET, turns=1)
        turn = dataclasses.replace(
            episode.turns[0], reply=reply, reply_ids=(1, 2, 3), action=action, info=info,
            shown=shown["text"], images=shown["images"],
        )  # fmt: skip
        return rewards.score(
            dataclasses.replace(episode, turns=(turn,), reset_info=reset_info)
        ).reward

    best = 1.5 if recipe.startswith("lmm_r1") else 1.0
    assert reward(None) == pytest.approx(best)
    assert reward("123456789") < best


@pytest.mark.parametrize("recipe", ROWS)
def test_a_recipe_passes_a_dry_run(recipe, drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentrl.training.plan.trial_episodes._BUDGET_S", 0.0)  # tested there
    command = [COMMANDS.get(recipe, "train"), f"recipes/{recipe}", *overrides(recipe, drawn)]
    assert run([*command, "--dry-run"]) == 0, capsys.readouterr().err
    assert "All checks pass" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", quick_or_slow(["lmm_r1_mgt_geo"], ROWS))
def test_a_recipe_takes_a_step_with_the_tiny_model(recipe, drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = COMMANDS.get(recipe, "train")
    section = command.removeprefix("train-").replace("-", "_")
    small = [f"{section}.steps=1", f"{section}.batch=2"] if recipe in COMMANDS else tiny()
    given = [*overrides(recipe, drawn), *small, "run.name=one"]
    assert run([command, f"recipes/{recipe}", *given]) == 0, capsys.readouterr().err
    assert (tmp_path / "runs" / "one" / "summary.json").is_file()

import itertools
import json
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

import agentrl
from agentrl import config as configuration
from agentrl.cli import run
from agentrl.config import EnvConfig
from agentrl.data.gymnasium_spaces import AnyText, ImageTuple
from agentrl.envs.qa import arithmetic, geometry
from agentrl.envs.qa.arithmetic import Arithmetic
from agentrl.envs.qa.counting import LEVELS, SHAPES, Counting
from agentrl.envs.qa.geometry import Geometry
from agentrl.errors import ActionError, ConfigError
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env
from tests.data.rows import picture, png, sums, write_jsonl

DRAWN = [
    {"data": data, "level": level}
    for data, levels in (
        ("counting", LEVELS), ("geometry", geometry.LEVELS), ("arithmetic", arithmetic.LEVELS),
    )
    for level in levels
]  # fmt: skip


def made(**kwargs):
    return agentrl.make("QA-v0", **kwargs).unwrapped


@pytest.fixture
def questions(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    rows = [
        {"problem": "<image>How gray?", "answer": str(n), "images": ["a.png"]} for n in range(9)
    ]
    return write_jsonl(tmp_path / "questions.jsonl", rows)


@pytest.mark.parametrize("kwargs", DRAWN, ids=lambda k: f"{k['data']}-{k['level']}")
def test_generated_questions_keep_gymnasiums_contract(kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made(**kwargs), skip_render_check=True)


def test_data_set_keeps_the_contract(questions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made(data=str(questions)), skip_render_check=True)


def test_spaces_contain_their_samples_and_nothing_else():
    text, pictures = AnyText(10, seed=1), ImageTuple(3, seed=1)
    assert all(pictures.contains(pictures.sample()) for _ in range(20))
    assert all(AnyText(seed=n).sample() in AnyText() for n in range(20))
    assert "größer 数" in text
    assert "x" * 11 not in text
    assert 3 not in text
    assert (picture(),) in pictures
    assert [picture()] not in pictures
    assert (picture().astype(float),) not in pictures
    assert (picture(),) * 4 not in pictures
    assert text == AnyText(10) != AnyText(11)
    assert pictures == ImageTuple(3) != ImageTuple(4)


@pytest.mark.parametrize("kwargs", DRAWN, ids=lambda k: f"{k['data']}-{k['level']}")
def test_the_expert_is_right_and_a_guesser_seldom(kwargs):
    env = made(**kwargs)
    translator = agentrl.make_translator("QA-v0")
    rng = np.random.default_rng(0)
    right = Counter()
    for seed in range(25):
        for name in ("expert", "random"):
            _, info = env.reset(seed=seed)
            player = load_player(resolve_env(EnvConfig(id="QA-v0")), name)
            action = translator.to_action(player.reply(info, rng))
            _, reward, terminated, _, info = env.step(action)
            assert terminated
            assert info["metrics"] == {"accuracy": reward}
            right[name] += reward
    assert right["expert"] == 25
    assert right["random"] < 13


@pytest.mark.parametrize(
    ("kwargs", "least", "most"),
    [
        ({"data": "counting"}, 40, 75),
        ({"data": "geometry", "level": "areas"}, 20, 40),
        ({"data": "arithmetic", "level": "products"}, 20, 40),
    ],
)
def test_habit_of_the_mediocre_player_is_mostly_wrong(kwargs, least, most):
    config = EnvConfig(id="QA-v0", kwargs=kwargs)
    env, rng = made(**kwargs), np.random.default_rng(0)
    player, translator = (
        load_player(resolve_env(config), "mediocre"),
        agentrl.make_translator("QA-v0"),
    )
    right = 0.0
    for seed in range(100):
        _, info = env.reset(seed=seed)
        right += env.step(translator.to_action(player.reply(info, rng)))[1]
    assert least < right < most


def test_same_seed_gives_the_same_picture_and_another_seed_another():
    for kwargs in DRAWN:
        first, again, other = (made(**kwargs).reset(seed=s) for s in (7, 7, 8))
        assert first[1] == again[1] != other[1]
        for a, b in zip(first[0]["images"], again[0]["images"], strict=True):
            assert np.array_equal(a, b)


def test_counts_are_those_of_the_picture():
    for seed in range(60):
        task = Counting().question(seed)
        wanted, things = task.facts["wanted"], task.facts["things"]
        count = sum(all(thing[k] == v for k, v in wanted.items()) for thing in things)
        assert task.answer == str(count)
        assert task.thought.endswith(f" {count}")
        assert len(task.thought.split(" none")) - 1 == 9 - len(things)
    shapes = {t["shape"] for s in range(20) for t in Counting().question(s).facts["things"]}
    assert shapes == {*SHAPES}


def test_every_shape_of_a_hard_picture_can_be_seen():
    least, most = LEVELS["hard"].least, LEVELS["hard"].most
    for seed in range(5):
        task = Counting("hard").question(seed)
        assert least - 2 <= len(task.facts["things"]) <= most
        assert int(task.answer) <= 9


def test_shapes_that_are_asked_for_lie_over_others_as_often_as_under_them():
    over: Counter[bool] = Counter()
    for seed in range(25):
        facts = Counting("hard", 28).question(seed).facts
        fits = [all(t[k] == v for k, v in facts["wanted"].items()) for t in facts["things"]]
        places = [np.array(t["at"]) for t in facts["things"]]  # from back to front
        for front, behind in itertools.combinations(reversed(range(len(places))), 2):
            if fits[front] != fits[behind] and np.hypot(*(places[front] - places[behind])) < 0.7:
                over[fits[front]] += 1
    assert 0.3 < over[True] / over.total() < 0.7


def test_shapes_are_drawn_with_smooth_edges_and_stay_on_the_picture():
    shades = 0
    for seed in range(5):
        picture = Counting().question(seed).images[0]
        assert picture.shape == (252, 252, 3)
        shades = max(shades, len(np.unique(picture @ np.array([65536, 256, 1]))))
        border = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
        assert (border == picture[0, 0]).all()
    assert shades > 30  # four colors and the background, except at the edges


def test_sums_of_arithmetic_and_geometry_follow_from_their_thoughts():
    for seed in range(50):
        for task in (Arithmetic("hard").question(seed), Geometry("hard", 112).question(seed)):
            last = task.thought.replace("x =", "=").rsplit("=", 1)[1].split(",")[-1]
            assert int(last) == int(task.answer)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"data": "counting", "level": "harder"}, "level='harder'"),
        ({"data": "counting", "pixels": 5}, "pixels=5"),
        ({"data": "counting", "keys": {"problem": "q"}}, "counting generates its questions"),
        ({"data": "counting", "split": "train"}, "remove split"),
        (
            {"data": "arithmetic", "pixels": 100},
            "pixels=100: arithmetic generates its questions.* remove pixels",
        ),
        ({"data": "arithmetic", "split": "test"}, "split='test': must be one of train, eval"),
        ({"data": "arithmetic", "hold_out": 0.1}, "hold_out=0.1, split=None"),
        ({"data": "geometry", "split": "eval", "hold_out": 1.0}, r"hold_out=1.0: .* in \[0, 1\)"),
        (
            {"data": "arithmetic", "split": "eval", "hold_out": 1e-6},
            "belongs to split=eval; choose a different share",
        ),
        (
            {"data": "geometry", "split": "eval", "hold_out": 0.0},
            "belongs to split=eval; choose a different share",
        ),
        (
            {"data": "counting", "shuffle": 1},
            "shuffle=1: counting generates its questions.* remove shuffle",
        ),
        (
            {"data": "arithmetic", "template": "{{ term }} ="},
            r"template='{{ term }} =': unknown variable 'term'.* can use problem, content, prompt",
        ),
        (
            {"data": "counting", "template": "How many shapes?"},
            "template='How many shapes.': must show <image> as often as the question does",
        ),
        ({"data": "arithmetic", "shuffle": None}, "shuffle=None: arithmetic generates"),
        ({"data": "geometry", "on_bad": "skip"}, "on_bad='skip': geometry generates its questions"),
        ({"data": "counting", "grade": "choice"}, "the questions of counting have no options"),
        ({"data": "counting", "pixels": "wide"}, "pixels='wide': must be an integer"),
        ({"data": None}, "data=None: must be a file"),
        ({"data": 5}, "data=5: must be a file"),
        ({"data": {"train": None}, "split": "train"}, "data=None: must be a file"),
        ({"data": "a.jsonl", "hold_out": "abc"}, "hold_out='abc': must be a number in"),
        ({"data": "a.jsonl", "keys": ["a"]}, r"keys=\['a'\]: must be a mapping"),
        ({"data": "a.jsonl", "keys": {"answer": 1}}, "keys.answer=1: must be a column name"),
        ({"data": "a.jsonl", "template": 5}, "template=5: must be a string"),
        ({"data": "a.jsonl", "shuffle": "abc"}, "shuffle='abc': must be a non-negative integer"),
        ({"data": "a.jsonl", "shuffle": -1}, "shuffle=-1: must be a non-negative integer"),
        ({"data": "a.jsonl", "shuffle": 1.5}, "shuffle=1.5: must be a non-negative integer"),
        ({"tolerance": "low"}, "tolerance='low'"),
        ({"data": "nothing.jsonl"}, "no such file"),
        ({"grade": "exactly"}, "grade='exactly'"),
        ({"tolerance": 2.0}, "tolerance=2.0"),
        ({"data": {"train": "counting"}, "split": "eval"}, "data has the splits train"),
        ({"shuffel": 1}, "did you mean 'shuffle'"),
    ],
)
def test_invalid_arguments_are_rejected_before_any_episode(kwargs, words):
    with pytest.raises(ConfigError, match=words):
        resolve_env(EnvConfig(id="QA-v0", kwargs=kwargs)).check_arguments()


def test_a_template_renders_generated_questions_as_complete_prompts(tmp_path):
    plain = made(data="arithmetic", split="eval")
    text = "1 + 1 = 2\n{{ problem[8:-1] }} ="
    (tmp_path / "sum.jinja").write_text(text)
    for template in (text, str(tmp_path / "sum.jinja")):
        env = made(data="arithmetic", split="eval", template=template)
        for seed in range(5):
            _, before = plain.reset(seed=seed)
            shown, info = env.reset(seed=seed)
            assert shown["text"] == f"1 + 1 = 2\n{before['facts']['term']} ="
            assert info["accepted"] == before["accepted"]
            assert info["system"] == ""  # no instructions are added, as for rows of data sets
    shown, _ = made(data="counting", template="{{ problem }} Now.").reset(seed=0)
    assert shown["text"].endswith("? Now.")


@pytest.mark.parametrize(
    ("given", "words"), [({"level": "hard"}, "level='hard'"), ({"pixels": 84}, "pixels=84")]
)
def test_settings_of_generated_questions_are_rejected_for_a_file(questions, given, words):
    with pytest.raises(ConfigError, match=f"{words}: applies only to generated questions"):
        made(data=str(questions), **given)


@pytest.mark.parametrize("data", ["counting", "arithmetic", "geometry", "file"])
def test_share_of_nothing_holds_nothing_out(questions, data):
    env = made(data=str(questions) if data == "file" else data, hold_out=0.0)
    same = made(data=str(questions) if data == "file" else data)
    for seed in range(9):
        assert env.reset(seed=seed)[1] == same.reset(seed=seed)[1]


def asked(task):
    """Return a key that is the same for a figure and its rotations."""
    kind, numbers = task.facts.get("kind"), re.findall(r"\d+", task.thought)
    if kind in (None, "ell"):
        return task.problem, task.thought
    return kind, task.problem, task.answer, *sorted(numbers)


@pytest.mark.parametrize(
    ("source", "given", "count"),
    [
        (Arithmetic, ("easy",), 1500),
        (Geometry, ("areas", 112), 500),
        (Geometry, ("easy", 112), 500),
        (Geometry, ("hard", 112), 500),
    ],
)
def test_held_out_questions_are_never_drawn_in_training(source, given, count):
    def drawn(first, count, split):
        tasks = source(*given, split=split)
        return {asked(tasks.question(seed)) for seed in range(first, first + count)}

    train, held_out = drawn(105_000_000, count, "train"), drawn(1_000_000, count // 5, "eval")
    everything = drawn(0, count // 3, None)
    assert not train & held_out
    assert train & everything
    assert held_out & everything
    if source is Arithmetic:
        assert (len(train | held_out), len(held_out)) == (200, 40)


@pytest.mark.parametrize("level", ["easy", "hard"])
@pytest.mark.parametrize("data", ["arithmetic", "geometry"])
def test_every_question_is_of_one_split_and_the_share_is_that_of_hold_out(data, level):
    envs = [made(data=data, level=level, split=split) for split in (None, "train", "eval")]
    held_out = 0
    for seed in range(50):
        infos = [env.reset(seed=seed)[1] for env in envs]
        one, train, held = ((info["problem"], info["thought"]) for info in infos)
        assert (one == train) != (one == held)
        held_out += one == held
    assert 4 <= held_out <= 18


def test_bad_rows_end_a_dry_run_with_their_names(tmp_path, monkeypatch, capsys):
    write_jsonl(tmp_path / "bad.jsonl", [*sums(3), {"problem": "?", "answer": None}])
    (tmp_path / "job.yaml").write_text(
        "env: {id: QA-v0, kwargs: {data: bad.jsonl}, max_turns: 1}\n"
        "rollout: {engine: hf, launcher: local}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["train", "job.yaml", "--dry-run"]) == 2
    assert "1 of 4 rows are bad: line 4: it has no answer" in capsys.readouterr().err


def test_dry_run_tells_how_many_questions_each_part_has(tmp_path, monkeypatch, capsys, caplog):
    write_jsonl(tmp_path / "a.jsonl", sums(20))
    (tmp_path / "job.yaml").write_text(
        "env: {id: QA-v0, kwargs: {data: a.jsonl, hold_out: 0.3, split: train}, max_turns: 1}\n"
        "rollout: {engine: hf, launcher: local}\n"
        "eval: {kwargs: {split: eval}, episodes: 21}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["train", "job.yaml", "--dry-run"]) == 0
    count = yaml.safe_load(capsys.readouterr().out)["resolved"]["distinct episodes"]
    assert count["training"] + count["evaluation"] == 20
    assert 0 < count["evaluation"] < 20
    assert (
        f"eval.episodes=21: only {count['evaluation']} distinct episodes are held out"
        in caplog.text
    )


def test_splits_of_several_files_and_of_a_share(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", sums(30))
    write_jsonl(tmp_path / "b.jsonl", sums(5))
    files = {"train": str(tmp_path / "a.jsonl"), "eval": str(tmp_path / "b.jsonl")}

    def problems(count, **kwargs):
        env = made(**kwargs)
        return {env.reset(seed=seed)[1]["problem"] for seed in range(count)}

    assert len(problems(30, data=files, split="train")) == 30
    assert len(problems(30, data=files, split="eval")) == 5
    halves = [problems(60, data=files["train"], hold_out=0.5, split=s) for s in ("train", "eval")]
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == 30
    with pytest.raises(ConfigError, match=r"hold_out=0.5, split=None"):
        made(data=files["train"], hold_out=0.5)


def test_answers_are_graded_by_the_configured_rule(tmp_path):
    row = {"problem": "?", "options": ["four", "five"], "answer": "B"}
    path = str(write_jsonl(tmp_path / "a.jsonl", [row]))

    def reward(answer, **kwargs):
        env = made(data=path, **kwargs)
        env.reset(seed=0)
        return env.step(answer)[1]

    assert reward("b") == 1.0
    assert reward("five") == 0.0
    assert reward("five", grade="choice") == 1.0
    assert reward("", grade="choice") == 0.0
    env = made(data=path, grade="none")
    env.reset(seed=0)
    assert "metrics" not in env.step("B")[4]


@pytest.mark.parametrize(
    ("grade", "row", "words"),
    [
        ("choice", {"options": ["one", "two"], "answer": "four"}, "'four' is none of its options"),
        ("choice", {"options": ["one", "two"], "answer": "C"}, "'C' is none of its options"),
        ("choice", {"options": ["one", "two"], "answer": ["A", "3"]}, "'3' is none of its options"),
        ("numeric", {"answer": "four"}, "'four' is not a number"),
        ("numeric", {"answer": ["4", "IV"]}, "'IV' is not a number"),
    ],
)
def test_row_that_nobody_could_be_right_about_is_bad(tmp_path, grade, row, words):
    good = {"options": ["one", "2"], "answer": "2"}
    rows = [{"problem": "?", **one} for one in (good, row)]
    path = str(write_jsonl(tmp_path / "a.jsonl", rows))
    with pytest.raises(ConfigError, match=f"1 of 2 rows are bad: line 2: its answer {words}"):
        resolve_env(EnvConfig(id="QA-v0", kwargs={"data": path, "grade": grade})).check_arguments()
    resolve_env(EnvConfig(id="QA-v0", kwargs={"data": path, "grade": "exact"})).check_arguments()
    env = made(data=path, grade=grade, on_bad="skip")
    _, info = env.reset(seed=1)
    assert env.step(info["ground_truth"])[1] == 1.0
    without = str(write_jsonl(tmp_path / "b.jsonl", [{"problem": "?", "answer": "four"}]))
    with pytest.raises(ConfigError, match="'four' is not a letter, and it has no options"):
        made(data=without, grade="choice")


def test_the_translator_asks_verbatim_and_parses_the_answer(questions):
    env = made(data=str(questions))
    translator = agentrl.make_translator("QA-v0", {"style": "boxed"})
    observation, info = env.reset(seed=3)
    message = translator.to_message(translator.to_observation(observation, info))
    assert (message.text, len(message.images)) == ("<image>How gray?", 1)
    assert r"\boxed{your answer}" in translator.instructions()
    assert translator.to_action(r"so \boxed{3}") == "3"
    with pytest.raises(ActionError):
        translator.to_action("<answer>3</answer>")
    assert env.step(translator.no_action())[1] == 0.0
    assert agentrl.make_translator("QA-v0", {"instruct": False}).instructions() == ""
    with pytest.raises(ConfigError, match="style"):
        agentrl.make_translator("QA-v0", {"style": "spoken"})


def test_job_over_a_data_set_records_its_components(tmp_path, questions):
    config = configuration.from_dict(
        {
            "run": {"dir": str(tmp_path / "runs")},
            "env": {"id": "QA-v0", "kwargs": {"data": str(questions)}, "max_turns": 1},
            "rewards": [
                {"function": "agentrl.rewards.matching:exact"},
                {"function": "agentrl.rewards.form:think_answer", "weight": 0.5},
            ],
            "logging": [],
        }
    )
    found = agentrl.evaluate(config, policy="expert", episodes=4)
    assert found.metrics["reward"] == 1.5
    assert {found.metrics[f"reward/{name}"] for name in ("exact", "think_answer")} == {1.0}
    assert json.dumps(found.summary())

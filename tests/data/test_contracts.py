"""Rows of other trainers' data sets, with the reward functions that their users have."""

import base64
import dataclasses
import functools
import http.server
import json
import threading

import numpy as np
import pytest

import agentrl
from agentrl.config import Config, EnvConfig, RewardConfig
from agentrl.errors import ConfigError, RewardError
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.job_plan import check_scripted_play
from tests.data.rows import picture, png, write_jsonl
from tests.rollout.rewards.test_reward_calls import TICKET
from tests.rollout.test_collector import episode_of

DATA_URI = "data:image/png;base64," + base64.b64encode(png(picture(40))).decode()
OURS = "tests.data.contract_rewards:"
EASYR1 = {
    "problem": "<image>Is it <image>?",
    "images": ["a.png", DATA_URI],
    "answer": "3",
    "difficulty": 2,
}
R1V = {
    "image": "a.png",
    "problem": "How many items are there in the image?",
    "solution": "<answer> 3 </answer>",
}
VERL = {
    "prompt": [
        {"role": "system", "content": "Think first."},
        {"role": "user", "content": "<image>Find x."},
    ],
    "images": [{"bytes": png(picture(60)), "path": None}],
    "data_source": "hiyouga/geometry3k",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "3"},
    "extra_info": {"split": "train", "index": 7},
}
LMM_R1_MESSAGE = [
    {
        "role": "user",
        "content": [
            {"type": "image", "image": "file://{folder}/a.png"},
            {"type": "text", "text": "How many circles?"},
        ],
    }
]
TRL_BESIDE = {
    "prompt": [{"role": "user", "content": "How many?"}],
    "images": ["a.png"],
    "solution": "<answer>3</answer>",
}
TRL_PARTS = {
    "prompt": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}
    ],
    "images": ["a.png"],
    "solution": "<answer>3</answer>",
}
RIGHT, WRONG = (f"<think>so</think><answer>{answer}</answer>" for answer in (3, 4))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.png").write_bytes(png(picture(20)))
    return tmp_path


def written(folder, *rows):
    return write_jsonl(folder / "rows.jsonl", rows)


def parquet(folder, *rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), folder / "rows.parquet")
    return folder / "rows.parquet"


def asked(path, **kwargs):
    """The environment, its observation and its info at the first row."""
    settings = {"grade": "exact", "shuffle": None} | kwargs
    env = agentrl.make("QA-v0", data=str(path), **settings).unwrapped
    return env, *env.reset(seed=0)


def scored(path, reply, *rewards, kind="auto", kwargs=None, **settings):
    """The components of an episode that answers the first row."""
    functions = functions_of(rewards, kind, json.dumps(kwargs or {}))
    return functions.score(answering(path, reply, **settings))


@functools.lru_cache(maxsize=4)
def functions_of(rewards, kind, kwargs):
    """Functions in one process for all rows that they score."""
    kwargs = json.loads(kwargs)
    configs = [RewardConfig(function=one, kwargs=kwargs, kind=kind) for one in rewards]
    return RewardFunctions(configs, 30.0)


def answering(path, reply, **settings):
    """An episode that answers the first row."""
    env, shown, reset_info = asked(path, **settings)
    *_, info = env.step(reply)
    episode = episode_of(TICKET, turns=1)
    turn = dataclasses.replace(
        episode.turns[0],
        reply=reply,
        reply_ids=(1, 2, 3),
        shown=shown["text"],
        images=shown["images"],
        info=info,
    )
    return dataclasses.replace(episode, turns=(turn,), reset_info=reset_info)


def totals(path, reward, replies=(RIGHT, WRONG), **settings):
    return [scored(path, reply, reward, **settings).reward for reply in replies]


# --- EasyR1 -------------------------------------------------------------------------------


def test_easyr1_rows_have_several_images_and_columns_for_the_reward(folder):
    path = written(folder, EASYR1)
    _, shown, _ = asked(path)
    assert shown["text"] == "<image>Is it <image>?"
    assert [image[1, 1, 0] for image in shown["images"]] == [20, 40]
    assert totals(path, f"{OURS}easyr1_batch") == [pytest.approx(1.0), pytest.approx(0.1)]
    right = scored(path, RIGHT, f"{OURS}easyr1_columns")
    assert right.components == {
        "easyr1_columns": (2.0,),
        "easyr1_columns/pictures": (2.0,),
        "easyr1_columns/gray": (20.0,),
    }


def test_easyr1_sequential_functions_are_detected(folder):
    assert totals(written(folder, EASYR1), f"{OURS}easyr1_sequential") == [0.5, 0.0]


@pytest.mark.parametrize("kind", ["batch", "sequential"])
def test_reward_type_and_name_of_an_easyr1_file_are_used(folder, kind):
    row = "{'overall': float('3<' in one['response']), 'format': 1.0}"
    rows = f"[{row} for one in inputs]" if kind == "batch" else f"(lambda one: {row})(inputs)"
    file = folder / kind / "math.py"  # as EasyR1 names it, and Python one of its own modules
    file.parent.mkdir()
    file.write_text(
        f"REWARD_NAME = 'math'\nREWARD_TYPE = '{kind}'\ndef compute_score(inputs): return {rows}\n"
    )
    right = scored(written(folder, EASYR1), RIGHT, f"{file}:compute_score")
    assert right.components == {"math": (1.0,), "math/format": (1.0,)}


def test_an_unknown_reward_type_is_a_config_error(folder):
    file = folder / "odd_type.py"
    file.write_text("REWARD_TYPE = 'async'\ndef compute_score(inputs): return []\n")
    with pytest.raises(ConfigError, match="REWARD_TYPE='async' must be batch or sequential"):
        RewardFunctions([RewardConfig(function=f"{file}:compute_score")])


def test_a_file_may_be_named_with_easyr1s_split(folder):
    _, shown, _ = asked(f"{written(folder, EASYR1)}@train")
    assert len(shown["images"]) == 2
    with pytest.raises(ConfigError, match=r"split=test: .* is a single file"):
        asked(f"{folder / 'rows.jsonl'}@test")


def test_templates_have_the_names_of_other_trainers(folder):
    path = written(folder, EASYR1)
    easyr1 = "{{ content | trim }} You FIRST think. {{ images | length }} images."
    _, shown, _ = asked(path, template=easyr1)
    assert shown["text"] == "<image>Is it <image>? You FIRST think. 2 images."
    _, shown, _ = asked(parquet(folder, VERL), template="{{ prompt }} In {{ ability }}.")
    assert shown["text"] == "<image>Find x. In math."


# --- R1-V ---------------------------------------------------------------------------------


def test_r1v_rows_have_tagged_answers(folder):
    path = written(folder, R1V)
    _, shown, info = asked(path)
    assert (len(shown["images"]), info["ground_truth"]) == (1, "3")
    assert info["row"] == {**R1V, "image": None}
    pytest.importorskip("math_verify")
    loose = "<answer>3</answer>"
    replies = [RIGHT, WRONG, loose]
    assert totals(path, "agentrl.rewards.maths:R1V", replies) == [1.0, 0.5, 0.5]


def test_r1v_functions_get_the_tagged_solution_of_the_row(folder):
    path = written(folder, R1V)
    assert totals(path, f"{OURS}trl_accuracy") == [1.0, 0.0]
    assert totals(path, f"{OURS}trl_format", [RIGHT, "3"]) == [1.0, 0.0]


def test_a_column_that_a_trl_function_takes_is_missed_before_any_episode(folder):
    path = written(folder, {"problem": "<image>How many?", "image": "a.png", "answer": "3"})
    reward = [RewardConfig(function=f"{OURS}trl_accuracy")]
    qa = EnvConfig(id="QA-v0", kwargs={"data": str(path)})
    with pytest.raises(
        ConfigError,
        match=r"^rewards: trl_accuracy requires the column 'solution'.* Known: answer, .*problem, ",
    ):
        check_scripted_play(plan_rollouts(Config(env=qa, rewards=reward)))
    check_scripted_play(
        plan_rollouts(Config(env=qa, rewards=[RewardConfig(function=f"{OURS}trl_format")]))
    )
    written(folder, R1V)
    check_scripted_play(plan_rollouts(Config(env=qa, rewards=reward)))


# --- veRL ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["verl", "verl_async"])
def test_verl_rows_are_scored_by_their_own_data_source(folder, function):
    path = parquet(folder, VERL)
    _, shown, info = asked(path)
    assert (info["system"], shown["text"]) == ("Think first.", "<image>Find x.")
    assert shown["images"][0][1, 1, 0] == 60
    assert info["ground_truth"] == "3"
    right = scored(path, r"<think></think>\boxed{3}", f"{OURS}{function}")
    assert right.components == {function: (1.0,), f"{function}/index": (7.0,)}
    assert totals(path, f"{OURS}{function}", [r"\boxed{4}"]) == [0.0]
    row = {**VERL, "data_source": "openai/gsm8k", "reward_model": {"ground_truth": "72"}}
    replies = ["so #### 72", "so #### 73"]
    assert totals(parquet(folder, row), f"{OURS}{function}", replies) == [1.0, 0.0]


def test_a_ground_truth_may_be_an_object_for_a_reward_function_alone(folder):
    truth = {"style": "rule", "ground_truth": {"target": ["3", "three"]}}
    path = parquet(folder, VERL | {"data_source": "searchR1_nq", "reward_model": truth})
    assert totals(path, f"{OURS}verl", grade="none") == [1.0, 0.0]
    with pytest.raises(ConfigError, match="it has no answer"):
        asked(path)


def test_a_missing_key_inside_a_column_is_named_before_work_starts(folder):
    path = parquet(folder, VERL)
    keys = {"answer": "reward_model.ground_truht"}
    with pytest.raises(ConfigError, match=r"column reward_model of .* has no such key \(did you"):
        asked(path, keys=keys)
    with pytest.raises(ConfigError, match=r"no such column \(did you mean 'reward_model'\?\)"):
        asked(path, keys={"answer": "reward_modle.ground_truth"})
    with pytest.raises(
        ConfigError,
        match=r"no column is named .*answer.* \(did you mean 'anwser'\?\).*The data has: pr",
    ):
        asked(written(folder, {"problem": "?", "anwser": "3"}))


# --- LMM-R1 and OpenRLHF ------------------------------------------------------------------


def lmm_r1(folder, **columns):
    message = json.dumps(LMM_R1_MESSAGE).replace("{folder}", str(folder))
    return written(folder, {"message": message, **columns})


def test_lmm_r1_messages_are_json_text_with_file_urls(folder):
    path = lmm_r1(folder, answer="$3$")
    _, shown, info = asked(path)
    assert shown["text"] == "<image>How many circles?"
    assert shown["images"][0][1, 1, 0] == 20
    assert json.loads(info["row"]["message"])[0]["role"] == "user"
    pytest.importorskip("math_verify")
    assert totals(path, "agentrl.rewards.maths:Accuracy") == [1.0, 0.0]


def test_the_label_may_have_any_name(folder):
    path = lmm_r1(folder, gold="3")
    assert totals(path, f"{OURS}openrlhf", keys={"answer": "gold"}) == [1.0, 0.0]


def test_file_urls_outside_the_allowed_folder_are_refused(folder):
    (folder / "inside").mkdir()
    path = lmm_r1(folder, answer="3")
    with pytest.raises(ConfigError, match=r"a\.png.*outside .*inside; set image_root"):
        asked(path, image_root=str(folder / "inside"))


def test_openrlhf_reward_functions_get_queries_prompts_and_labels(folder):
    right = scored(lmm_r1(folder, answer="3"), RIGHT, f"{OURS}openrlhf")
    assert right.components == {
        "openrlhf": (1.0,),
        "openrlhf/score": (1.0,),
        "openrlhf/seen": (1.0,),
    }


# --- TRL ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [TRL_BESIDE, TRL_PARTS], ids=["beside", "parts"])
def test_trl_prompts_are_messages_with_images(folder, row):
    path = written(folder, row)
    _, shown, _ = asked(path)
    assert (shown["text"], len(shown["images"])) == ("<image>How many?", 1)
    assert totals(path, f"{OURS}trl_accuracy") == [1.0, 0.0]
    assert totals(path, f"{OURS}trl_format", [RIGHT, "3"]) == [1.0, 0.0]


def test_trl_rewards_get_pictures_as_pil_images(folder):
    assert totals(written(folder, TRL_PARTS), f"{OURS}trl_pictures") == [8.0, 8.0]
    row = {"problem": "<image>How many?", "images": ["a.png"], "solution": "3"}
    assert totals(written(folder, row), f"{OURS}trl_pictures") == [8.0, 8.0]


def test_completions_are_text_if_the_prompt_is_text(folder):
    path = written(folder, {"prompt": "What follows 2 in 1, 2, 3", "answer": "3"})
    assert totals(path, f"{OURS}trl_text", ["3", "4"]) == [1.0, 0.0]


def test_none_from_a_trl_reward_leaves_the_row_to_the_others(folder):
    path = written(folder, TRL_PARTS | {"solution": "3"})
    scores = scored(path, RIGHT, f"{OURS}trl_accuracy", f"{OURS}trl_format")
    assert scores.components == {"trl_format": (1.0,)}


def test_a_row_that_no_trl_reward_scores_is_an_error_and_no_zero(folder):
    path = written(folder, TRL_PARTS | {"solution": "3"})
    with pytest.raises(RewardError, match=r"no reward function applies .*: trl_accuracy returned"):
        scored(path, RIGHT, f"{OURS}trl_accuracy")


def test_a_column_that_a_trl_reward_needs_and_no_row_has_ends_the_job(folder):
    path = written(folder, {"problem": "?", "answer": "3"})
    with pytest.raises(ConfigError, match=r"requires the column 'answr'.*did you mean 'answer'"):
        scored(path, RIGHT, f"{OURS}trl_of_another_column")


# --- their own functions, where they are installed ----------------------------------------


def test_trls_own_rewards_and_factories_score_as_when_they_are_called_directly(folder):
    trl = pytest.importorskip("trl.rewards")
    solution = r"$\frac{1}{3}$"
    path = written(folder, TRL_PARTS | {"solution": solution})
    made = {
        "get_soft_overlong_punishment": {"max_completion_len": 4, "soft_punish_cache": 2},
        "get_repetition_penalty_reward": {"ngram_size": 1},
        "get_cosine_scaled_reward": {"max_len": 10},
    }
    plain = ["accuracy_reward", "reasoning_accuracy_reward", "think_format_reward"]
    configs = [RewardConfig(function=f"trl.rewards:{name}") for name in plain] + [
        RewardConfig(function=f"trl.rewards:{name}", kwargs=kwargs) for name, kwargs in made.items()
    ]
    given = {"solution": [solution], "completion_ids": [[1, 2, 3]]}
    functions = [getattr(trl, name) for name in plain]
    functions += [getattr(trl, name)(**kwargs) for name, kwargs in made.items()]
    with RewardFunctions(configs, 60.0) as rewards:
        for number in (3, 2):
            reply = rf"<think>so</think>\boxed{{\frac{{1}}{{{number}}}}}"
            found = rewards.score(answering(path, reply)).components
            texts = [[{"role": "assistant", "content": reply}]]
            expected = [function(completions=texts, **given)[0] for function in functions]
            assert [values[-1] for values in found.values()] == expected


def test_verls_own_rewards_score_right_and_wrong(folder):
    pytest.importorskip("verl.utils.reward_score")
    default = "verl.utils.reward_score:default_compute_score"
    gsm8k = {"data_source": "openai/gsm8k", "reward_model": {"ground_truth": "72"}}
    path = parquet(folder, VERL | gsm8k)
    assert totals(path, default, ["so #### 72", "so #### 73"]) == [1.0, 0.0]
    pytest.importorskip("mathruler")
    replies = [rf"<think></think>\boxed{{{n}}}" for n in (3, 4)]
    assert totals(parquet(folder, VERL), default, replies) == [pytest.approx(1.0), 0.1]


# --- data sets of the datasets library ----------------------------------------------------


@pytest.fixture
def configured(tmp_path):
    """A folder as the hub stores it, with two configurations and two splits."""
    pytest.importorskip("datasets")
    lines = ["---", "configs:"]
    for name, first in (("easy", 0), ("hard", 100)):
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, more in (("train", 0), ("test", 50)):
            rows = [{"problem": f"{first + more + n}?", "answer": "3"} for n in range(5)]
            (tmp_path / "set" / name).mkdir(parents=True, exist_ok=True)
            write_jsonl(tmp_path / "set" / name / f"{split}.jsonl", rows)
            lines += [f"  - split: {split}", f"    path: {name}/{split}.jsonl"]
    (tmp_path / "set" / "README.md").write_text("\n".join([*lines, "---", ""]))
    return tmp_path / "set"


def test_a_split_and_a_configuration_are_chosen(configured):
    _, shown, _ = asked(f"{configured}@test", name="hard")
    assert shown["text"] == "150?"
    _, shown, _ = asked(configured, name="easy", split="train")
    assert shown["text"] == "0?"
    with pytest.raises(ConfigError, match="has train, test; choose one"):
        asked(configured, name="hard")
    with pytest.raises(ConfigError, match=r"split=train: .*@test refers to a different split"):
        asked(f"{configured}@test", split="train", name="hard")
    env, *_ = asked(f"{configured}@train", name="hard", split="eval", hold_out=0.5)
    assert 0 < len(env._source) < 5


def test_the_first_rows_of_a_stream_are_read(configured):
    env, shown, _ = asked(f"{configured}@test", name="hard", streaming=True, max_rows=3)
    assert (len(env._source), shown["text"]) == (3, "150?")
    with pytest.raises(ConfigError, match="streaming=true: set max_rows"):
        asked(f"{configured}@test", name="hard", streaming=True)
    env, *_ = asked(f"{configured}@test", name="hard", max_rows=2)
    assert len(env._source) == 2


@pytest.mark.parametrize(
    "settings", [{"name": "easy"}, {"revision": "main"}, {"streaming": True, "max_rows": 2}]
)
def test_settings_of_the_hub_do_not_apply_to_a_file(folder, settings):
    with pytest.raises(ConfigError, match="is a single file; remove the setting"):
        asked(written(folder, EASYR1), **settings)


def test_a_revision_reaches_the_hub_and_does_not_apply_to_a_folder(configured, monkeypatch):
    import datasets
    import huggingface_hub

    asked_for = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked_for.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hub) as hub:
        url = f"http://127.0.0.1:{hub.server_port}"
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", url)
        for module in (datasets.config, huggingface_hub.constants):
            monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(ConfigError, match="loading it from the Hub failed"):
                asked("owner/name", revision="v1.2")
        finally:
            hub.shutdown()
            thread.join(10)
    assert asked_for
    assert all(path.startswith("/datasets/owner/name/resolve/v1.2/") for path in asked_for)
    with pytest.raises(ConfigError, match=r"revision=v1\.2: .* is a local folder"):
        asked(configured, name="easy", split="train", revision="v1.2")


def test_columns_of_pictures_are_not_recorded(folder):
    row = R1V | {"extra": DATA_URI, "scores": [1, {"a": 2.5}], "none": None}
    _, _, info = asked(written(folder, row), keys={"images": "image"})
    assert info["row"] == {**row, "image": None, "extra": None}
    assert info["image_column"] == "image"
    assert json.dumps(info["row"])


def test_pictures_of_the_row_are_those_that_the_model_saw(folder):
    from agentrl.rollout.rewards.reward_calls import inputs_of

    for row, held in ((R1V, "image"), (EASYR1, "images")):
        _, shown, reset_info = asked(written(folder, row))
        episode = episode_of(TICKET, turns=1)
        turn = dataclasses.replace(episode.turns[0], images=shown["images"])
        inputs = inputs_of(dataclasses.replace(episode, turns=(turn,), reset_info=reset_info))
        first = inputs[held] if held == "image" else inputs[held][0]
        assert np.array_equal(first, picture(20))

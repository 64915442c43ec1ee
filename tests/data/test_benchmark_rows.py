"""Rows of benchmarks, literally: what the model is asked, and which replies are right."""

import pytest

import agentrl
from agentrl.config import Config, EnvConfig, RewardConfig
from agentrl.data.open_table import open_table
from agentrl.data.question_reader import PromptRows
from agentrl.errors import ActionError, ConfigError
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.training.plan.job_plan import check_scripted_play
from tests.data.rows import picture, png, write_jsonl
from tests.data.test_contracts import RIGHT, WRONG, asked, scored, written

GSM8K = {
    "question": "Ann sells 48 clips in April and half as many in May. How many in all?",
    "answer": "In May she sells 48/2 = <<48/2=24>>24.\nIn all 48+24 = <<48+24=72>>72.\n#### 72",
}
MATH = {
    "problem": "What is half of one?",
    "solution": r"Half of one is $1 \cdot \frac{1}{2} = \boxed{\frac{1}{2}}.$",
    "level": "Level 1",
}
MMMU = {
    "id": "validation_Accounting_1",
    "question": "<image 1> Compare it with <image 2>. Which one is right?",
    "options": "['$6', \"the bank's\", '<image 3>', '8']",
    "answer": "B",
    "question_type": "multiple-choice",
    **{f"image_{n}": f"{n}.png" if n < 4 else None for n in range(1, 8)},
}
MMMU_OPEN = {
    **MMMU,
    "question": "<image 1> Which share?",
    "options": "[]",
    "answer": "['24/7', '3.429']",
    "image_2": None,
    "image_3": None,
}
MMMU_PROMPT = (
    "{{ problem }}"
    "{% for option in options %}\n({{ 'ABCDEFG'[loop.index0] }}) {{ option }}{% endfor %}"
)
MATHVISTA = {
    "question": "How many degrees has the angle?",
    "image": "1.png",
    "choices": ["135°", "140°", "145°"],
    "answer": "145°",
    "question_type": "multi_choice",
}
MATHVISTA_FREE = {**MATHVISTA, "choices": None, "answer": "1.2", "question_type": "free_form"}


def wide(text):
    """The text in full-width characters, as Chinese input methods write it."""
    return text.translate({32: 0x3000} | {code: code + 0xFEE0 for code in range(33, 127)})


@pytest.fixture
def folder(tmp_path):
    for n in range(1, 4):
        (tmp_path / f"{n}.png").write_bytes(png(picture(20 * n)))
    return tmp_path


def prompted(path, **settings):
    """The text and the images with which `agentrl infer` asks the first row."""
    _, row = PromptRows(open_table(str(path)), "rows", **settings).load(0)
    (message,) = row.messages
    return message.text, row.images


def graded(path, reply, style="either", **settings):
    """The environment's reward for a reply to the first row, read by its translator."""
    env, *_ = asked(path, **settings)
    translator = agentrl.make_translator("QA-v0", {"style": style})
    try:
        action = translator.to_action(reply)
    except ActionError:
        action = translator.no_action()
    return env.step(action)[1]


# --- answers that the grade can never accept ------------------------------------------------


@pytest.mark.parametrize(
    ("row", "read_as"), [(GSM8K, "72"), (MATH, r"\\frac{1}{2}")], ids=["gsm8k", "math"]
)
@pytest.mark.parametrize("grade", ["exact", "numeric"])
def test_a_worked_solution_as_the_answer_is_refused_with_the_setting_that_grades_it(
    folder, row, read_as, grade
):
    words = {
        "exact": f"wrong by grade=exact when a reply gives it, as '{read_as}'",
        "numeric": "is not a number",
    }[grade]
    with pytest.raises(ConfigError) as refused:
        asked(written(folder, row), grade=grade)
    assert words in str(refused.value).replace(r"\\", "\\\\")
    remedy = "final answers, set grade=none and the reward agentrl.rewards.maths:Accuracy"
    assert str(refused.value).count(remedy) == 1


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (GSM8K, "<answer>72</answer>", "<answer>24</answer>"),
        (GSM8K, r"\boxed{72.0}", r"\boxed{48}"),
        (MATH, "<answer>0.5</answer>", r"\boxed{1}"),
    ],
)
def test_the_named_setting_scores_worked_solutions(folder, row, right, wrong):
    pytest.importorskip("math_verify")
    path = written(folder, row)
    accuracy = "agentrl.rewards.maths:Accuracy"
    assert scored(path, right, accuracy, grade="none").reward == 1.0
    assert scored(path, wrong, accuracy, grade="none").reward == 0.0


@pytest.mark.parametrize("answer", [".", "7" * 5000])
def test_an_answer_that_no_reply_can_give_is_refused(folder, answer):
    path = written(folder, {"problem": "?", "answer": answer})
    with pytest.raises(ConfigError, match="is wrong by grade=exact when a reply gives it"):
        asked(path)


# --- TRL: prompts without answers -----------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "function", "replies"),
    [
        ("Say 3", "trl_text", ("3", "4")),
        ([{"role": "user", "content": "Say it."}], "trl_format", (RIGHT, "3")),
    ],
    ids=["text", "messages"],
)
def test_prompts_without_answers_are_scored_by_a_reward_of_completions(
    folder, prompt, function, replies
):
    path = written(folder, {"prompt": prompt})
    reward = f"tests.data.contract_rewards:{function}"
    totals = [scored(path, reply, reward, grade="none").reward for reply in replies]
    assert totals == [1.0, 0.0]
    _, _, info = asked(path, grade="none")
    assert "ground_truth" not in info
    qa = {"data": str(path), "grade": "none"}
    check_scripted_play(
        plan_rollouts(
            Config(env=EnvConfig(id="QA-v0", kwargs=qa), rewards=[RewardConfig(function=reward)])
        )
    )


def test_rewards_that_are_given_the_right_answer_are_refused_without_one(folder):
    path = written(folder, {"prompt": "Say hello.", "anwser": "3"})
    with pytest.raises(ConfigError, match=r"answer.*or set grade=none if rewards need no answer"):
        asked(path)
    qa = EnvConfig(id="QA-v0", kwargs={"data": str(path), "grade": "none"})
    for function in ("verl", "easyr1_batch"):
        rewards = [RewardConfig(function=f"tests.data.contract_rewards:{function}")]
        with pytest.raises(ConfigError, match=rf"{function} takes the right answer.*keys={{answer"):
            check_scripted_play(plan_rollouts(Config(env=qa, rewards=rewards)))


# --- MMMU and MathVista ---------------------------------------------------------------------


def test_numbered_images_stand_where_the_text_mentions_them(folder):
    _, shown, info = asked(written(folder, MMMU), template=MMMU_PROMPT, grade="choice")
    assert shown["text"] == (
        "<image> Compare it with <image>. Which one is right?\n"
        "(A) $6\n(B) the bank's\n(C) <image>\n(D) 8"
    )
    assert [image[1, 1, 0] for image in shown["images"]] == [20, 40, 60]
    assert info["options"] == ["$6", "the bank's", "<image 3>", "8"]
    _, shown, _ = asked(written(folder, MMMU), grade="choice")  # the options are not shown
    assert shown["text"] == "<image><image> Compare it with <image>. Which one is right?"
    assert [image[1, 1, 0] for image in shown["images"]] == [60, 20, 40]


MATHVISTA_PROMPT = "{{ problem }}{% for choice in choices or [] %} {{ choice }}{% endfor %}"


@pytest.mark.parametrize("uses_template", [False, True])
@pytest.mark.parametrize(
    ("row", "template"),
    [
        (MMMU, MMMU_PROMPT), (MMMU_OPEN, MMMU_PROMPT),
        (MATHVISTA, MATHVISTA_PROMPT), (MATHVISTA_FREE, MATHVISTA_PROMPT),
    ],
    ids=["mmmu", "mmmu open", "mathvista", "mathvista free form"],
)  # fmt: skip
def test_inference_asks_what_a_job_asks(folder, row, template, uses_template):
    path = written(folder, row)
    template = template if uses_template else None
    _, shown, _ = asked(path, template=template, grade="choice")
    text, images = prompted(path, template=template)
    assert text == shown["text"]
    assert [image.tolist() for image in images] == [image.tolist() for image in shown["images"]]
    assert images


def test_messages_may_mention_numbered_images_too(folder):
    chat = [
        {"role": "user", "content": "Compare <image 2> with <image 1>."},
        {"role": "assistant", "content": "<image 2> is darker."},
        {"role": "user", "content": "And <image 2>?"},
    ]
    images = {name: cell for name, cell in MMMU.items() if name.startswith("image_")}
    _, row = PromptRows(
        open_table(str(written(folder, {"messages": chat, **images}))), "rows"
    ).load(0)
    assert [message.text for message in row.messages] == [
        "<image>Compare <image> with <image>.", "<image 2> is darker.", "And <image>?",
    ]  # fmt: skip
    assert [image[1, 1, 0] for image in row.images] == [60, 40, 20, 40]
    path = written(folder, {"messages": chat[:1], "answer": "1", **images})
    _, shown, _ = asked(path, grade="exact")
    assert (shown["text"], len(shown["images"])) == ("<image>Compare <image> with <image>.", 3)
    assert prompted(path)[0] == shown["text"]


def test_an_image_that_is_mentioned_and_missing_is_a_bad_row(folder):
    path = written(folder, {**MMMU, "image_2": None})
    for ask in (asked, prompted):
        settings = {"grade": "choice"} if ask is asked else {}
        with pytest.raises(ConfigError, match="it mentions <image 2>, but image_2 is empty"):
            ask(path, **settings)


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("B", 1.0), ("The answer is (B)", 1.0), ("Answer: B.", 1.0), ("the bank's", 1.0),
        ("<think>A?</think>\nThe final answer is B. The bank's", 1.0), (wide("B"), 1.0),
        ("A", 0.0), ("The answer is (A)", 0.0), ("The answer is a bank", 0.0), ("", 0.0),
    ],
)  # fmt: skip
def test_replies_without_a_tag_choose_an_option_in_text_style(folder, reply, reward):
    path = written(folder, MMMU)
    assert graded(path, reply, "text", grade="choice") == reward
    if "</think>" not in reply and reply:
        assert graded(path, f"<answer>{reply}</answer>", grade="choice") == reward
    function = "agentrl.rewards.matching:choice"
    tagged = f"<answer>{reply}</answer>"
    if "</think>" not in reply:
        assert scored(path, tagged, function, grade="choice").reward == reward


def test_a_list_in_a_text_holds_several_right_answers(folder):
    path = written(folder, MMMU_OPEN)
    right, wrong = ("3.429", "24/7"), ("3.4", "['24/7', '3.429']")
    for rows_grade in ("choice", "numeric", "exact"):
        assert [graded(path, x, "text", grade=rows_grade) for x in right] == [1.0, 1.0]
        assert [graded(path, x, "text", grade=rows_grade) for x in wrong] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (MATHVISTA, ("C", "(C) 145°", "145°"), ("B", "140°", "145")),
        (MATHVISTA_FREE, ("1.2", "1.20", wide("1.2")), ("1.3", "A", "C")),
    ],
    ids=["choice", "free form"],
)
def test_free_form_and_multiple_choice_rows_may_be_mixed(folder, row, right, wrong):
    path = written(folder, row, MATHVISTA, MATHVISTA_FREE)
    assert [graded(path, reply, "text", grade="choice") for reply in right] == [1.0] * 3
    assert [graded(path, reply, "text", grade="choice") for reply in wrong] == [0.0] * 3


def test_options_that_are_letters_of_others_are_refused_only_where_letters_count(folder):
    row = {"problem": "?", "choices": ["(c)", "(a)", "(b)"], "answer": "(a)"}
    path = written(folder, row)
    assert graded(path, "(a)", "text", grade="exact") == 1.0
    with pytest.raises(ConfigError, match=r"option '\(c\)' is also the letter of a diff"):
        asked(path, grade="choice")


def test_an_empty_column_of_images_beside_a_filled_one_is_passed_over(folder):
    rows = [{"problem": "?", "answer": "3", "images": [], "image": f"{n}.png"} for n in (1, 2)]
    _, shown, info = asked(written(folder, *rows))
    assert shown["images"][0][1, 1, 0] == 20
    assert info["image_column"] == "image"
    filled = [{"problem": "?", "answer": "3", "images": ["2.png"], "image": None}]
    assert asked(write_jsonl(folder / "b.jsonl", filled))[1]["images"][0][1, 1, 0] == 40


@pytest.mark.parametrize(
    ("grade", "answer", "right", "wrong"),
    [
        ("numeric", "42", wide("42"), wide("43")),
        ("numeric", "-1,200.5", wide("-1,200.5"), wide("1200.5")),
        ("numeric", "12%", wide("12%"), "12"),
        ("exact", "42", wide("42"), wide("43")),
        ("exact", "10²", "10²", "102"),
        ("exact", wide("AB C"), "ab c", "abc"),
    ],
)
def test_full_width_characters_are_read_and_exponents_are_kept(folder, grade, answer, right, wrong):
    path = written(folder, {"problem": "?", "answer": answer})
    assert graded(path, f"<answer>{right}</answer>", grade=grade) == 1.0
    assert graded(path, f"<answer>{wrong}</answer>", grade=grade) == 0.0


def test_wrong_replies_stay_wrong_and_tags_are_still_required_by_default(folder):
    path = written(folder, MMMU)
    assert graded(path, "B", grade="choice") == 0.0
    assert graded(path, WRONG, grade="choice") == 0.0

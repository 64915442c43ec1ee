"""Questions at the end of a conversation, whose earlier turns are part of the prompt everywhere."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

import agentrl
from agentrl import replay
from agentrl.config import EnvConfig, EvalConfig, RewardConfig, WarmStartConfig, from_dict
from agentrl.errors import ConfigError
from agentrl.extras import GET_DATA
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.replay import tables_export
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.env_server import EnvServer
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.training.demonstrations.demonstration_dataset import rerender_demonstrations
from agentrl.training.demonstrations.demonstration_filter import select_demonstrations
from agentrl.training.evaluation.interactive_play import PlayInterface, play
from agentrl.viewer.episodes import page_data
from agentrl.viewer.export import html_pages
from tests.data.rows import png, write_jsonl

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "<image>What?"},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": "And<image>now?"},
]
ROW = {"prompt": MESSAGES, "images": ["a.png", "b.png"], "answer": "dog"}
REWARD = """
def seen(completions, prompts, chat_messages, chat_prompt, screens, images, **kwargs):
    assert prompts == [MESSAGES] * len(completions), prompts
    for said, asked, pictures, all_of_prompt in zip(chat_messages, chat_prompt, screens, images):
        assert said[:-1] == MESSAGES, said
        assert [m["content"] in asked for m in MESSAGES] == [True] * 4, asked
        assert [picture.size for picture in pictures] == [picture.size for picture in all_of_prompt]
        assert [picture.size for picture in pictures] == [(56, 56), (84, 56)]
    return [1.0] * len(completions)
"""


def written(folder, *rows):
    for name, side in (("a.png", 56), ("b.png", 84)):
        (folder / name).write_bytes(png(np.full((56, side, 3), side, np.uint8)))
    return write_jsonl(folder / "rows.jsonl", rows)


def env_of(folder, *rows):
    path = written(folder, *rows)
    return EnvConfig(id="QA-v0", kwargs={"data": str(path), "grade": "none"}, max_turns=1)


def first_message(config):
    async def compose():
        step = await runner.reset(0)
        return await runner.message(step.observation)

    runner = EnvRunner(resolve_env(config), None)
    try:
        return asyncio.run(compose())
    finally:
        runner.close()


def said(messages):
    return [(one.role, one.text, [image.shape[1] for image in one.images]) for one in messages]


def test_each_message_has_its_own_images(tmp_path):
    message = first_message(env_of(tmp_path, ROW))
    assert message.system == "Be brief."
    assert said([*message.preceding, message]) == [
        ("user", "<image>What?", [56]),
        ("assistant", "A cat.", []),
        ("user", "And<image>now?", [84]),
    ]


def test_images_without_places_come_first_in_the_first_message(tmp_path):
    plain = [{**one, "content": one["content"].replace("<image>", " ")} for one in MESSAGES]
    message = first_message(env_of(tmp_path, {**ROW, "prompt": plain}))
    assert said([*message.preceding, message]) == [
        ("user", "<image><image> What?", [56, 84]),
        ("assistant", "A cat.", []),
        ("user", "And now?", []),
    ]


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                            {"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]},
         ["a", "b", "c"]),
        ({"instruction": "c", "input": "", "output": "d", "history": [["a", "b"]]},
         ["a", "b", "c"]),
        ({"messages": [{"role": role, "content": text} for role, text in
                       (("user", "a"), ("assistant", "b"), ("tool", "t"), ("assistant", "c"),
                        ("user", "one"), ("user", "two"))], "answer": "d"},
         ["a", "b", "t", "c", "one\n\ntwo"]),
    ],
    ids=["sharegpt", "alpaca", "tool"],
)  # fmt: skip
def test_conversations_of_other_forms(tmp_path, row, texts):
    config = env_of(tmp_path, row)
    env = agentrl.make(config.id, **config.kwargs)
    _, info = env.reset(seed=0)
    assert info["ground_truth"] == "d"
    message = first_message(config)
    assert [one.text for one in (*message.preceding, message)] == texts


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        (["assistant", "user"], "its first message is a reply of the assistant"),
        (["user", "tool", "user"], "a tool message follows a user message"),
        (["user", "system", "user"], "a system message must come first"),
        (["user", "assistant", "tool"], "but its role is tool"),
        (["system", "assistant"], r"so none is a question.*keys=\{problem: \.\.\.\}"),
        (["user", "robot"], "unknown role 'robot'"),
    ],
)
def test_messages_in_another_order_are_bad_rows(tmp_path, roles, why):
    row = {"prompt": [{"role": role, "content": "a"} for role in roles], "answer": "b"}
    with pytest.raises(ConfigError, match=why):
        env_of(tmp_path, row) and agentrl.make("QA-v0", data=str(written(tmp_path, row)))


@pytest.fixture(scope="module")
def folder(tiny_vlm, tmp_path_factory):
    """Return a folder with a run of the tiny model over one such row."""
    folder = tmp_path_factory.mktemp("conversations")
    path = written(folder, ROW)
    (folder / "seen.py").write_text(f"MESSAGES = {MESSAGES!r}\n{REWARD}")
    config = from_dict(
        {
            "run": {"dir": str(folder / "runs"), "name": "played"},
            "env": {
                "id": "QA-v0",
                "max_turns": 1,
                "kwargs": {"data": str(path), "grade": "none"},
                "translator_kwargs": {"style": "text"},
            },
            "model": {"path": str(tiny_vlm)},
            "rollout": {"engine": "hf", "launcher": "local", "max_new_tokens": 8},
            "rewards": [{"function": f"{folder}/seen.py:seen"}],
            "logging": [],
        }
    )
    agentrl.evaluate(config, episodes=2)
    return folder, config


def recorded(folder):
    (run,) = (folder / "runs").iterdir()
    run = replay.open(run)
    return run, [run.with_images(run.episode(one.id)) for one in run.episodes()]


def test_an_episode_is_recorded_with_the_prompt_of_the_chat_template(folder, tiny_vlm):
    from transformers import AutoProcessor

    _, (one, _) = recorded(folder[0])
    assert (one.summary.outcome.void, one.summary.reward) == (False, 1.0)
    episode, encoder = one.episode, ChatEncoder(tiny_vlm)
    assert [(m.role, m.text, len(m.frames), len(m.images)) for m in episode.messages()[:-1]] == [
        (m["role"], m["content"], m["content"].count("<image>"), m["content"].count("<image>"))
        for m in MESSAGES
    ]
    assert [image.shape[1] for m in episode.messages() for image in m.images] == [56, 84]
    parts = [
        {**one, "content": [
            part for text in one["content"].split("<image>")
            for part in ({"type": "text", "text": text}, {"type": "image"})
        ][:-1]} for one in MESSAGES
    ]  # fmt: skip
    processor = AutoProcessor.from_pretrained(tiny_vlm)
    text = processor.apply_chat_template(parts, add_generation_prompt=True, tokenize=False)
    images = [encoder.scale(image) for message in episode.messages() for image in message.images]
    expected = processor(text=[text], images=images, add_special_tokens=False)["input_ids"][0]
    assert list(episode.turns[0].prompt_ids) == [int(id) for id in expected]


def test_a_recording_gives_the_same_prompt_for_a_warm_start(folder, tiny_vlm):
    folder, config = folder
    run, (one, _) = recorded(folder)
    warm = WarmStartConfig(recorded=[str(run.path)])
    others = EvalConfig(first_seed=7_000_000)
    chosen = select_demonstrations(warm, resolve_env(config.env), config.model, others)
    assert chosen.has_other_instructions == 0
    (again, _) = rerender_demonstrations(
        chosen.episodes, resolve_env(config.env), ChatEncoder(tiny_vlm), 64
    )
    assert again.episode.turns[0].prompt_ids == one.episode.turns[0].prompt_ids


def test_exports_contain_all_messages(folder):
    pytest.importorskip("datasets", reason=GET_DATA)
    run, _ = recorded(folder[0])
    row, _ = tables_export.rows(run, "conversations")
    assert row["messages"][:-1] == MESSAGES
    assert len(row["frames"]) == 2
    turn, _ = tables_export.to_dataset(run, "turns")
    assert turn["preceding"] == MESSAGES[1:3]
    assert [image.size for image in turn["images"]] == [(56, 56), (84, 56)]
    chat, _ = tables_export.to_dataset(run, "conversations")
    assert chat["messages"][:-1] == MESSAGES


def test_recorded_conversations_can_be_scored_again(folder):
    _, episodes = recorded(folder[0])
    with RewardFunctions([RewardConfig(function=f"{folder[0]}/seen.py:seen")]) as rewards:
        assert [one.reward for one in rewards.score_all(e.episode for e in episodes)] == [1.0, 1.0]


def test_a_page_shows_the_earlier_messages(folder):
    run, (one, _) = recorded(folder[0])
    assert page_data.episode(one)["preceding"] == "user: What?\n\nassistant: A cat."
    assert b"user: What?\n\nassistant: A cat." in html_pages.episode_page(run, one)


def test_a_served_environment_gives_its_translator_the_whole_conversation(tmp_path):
    kwargs = env_of(tmp_path, ROW).kwargs
    server = EnvServer(lambda **given: agentrl.make("QA-v0", **given), ("127.0.0.1", 0))
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        message = first_message(EnvConfig(id=url, kwargs=kwargs, translator_class="QA-v0"))
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
    assert message.system == "Be brief."
    assert message.transcript() == "user: What?\n\nassistant: A cat.\n\nuser: Andnow?"


def test_a_person_is_shown_the_rows_own_conversation(tmp_path):
    config = env_of(tmp_path, ROW, {"prompt": "1 + 1?", "answer": "2"})
    config.kwargs["shuffle"] = None
    shown, seeds = [], iter([1, None])
    interface = PlayInterface(
        show_instructions=shown.append,
        show_error=shown.append,
        show_message=lambda message: shown.append(message.transcript()),
        show_turn=lambda turn: None,
        read_input=lambda: "2",
        next_game=lambda: next(seeds),
    )
    job = from_dict({"run": {"dir": str(tmp_path), "name": "p"}, "logging": []})
    play(replace(job, env=config), interface)
    ours = "Think about the question"
    texts = [ours if ours in text else text for text in shown if text]
    how = "Reply as <think>your thoughts</think>your answer, or \\boxed{your answer}."
    assert texts == [
        ours,
        f"Be brief.\n\n{how}",
        "user: What?\n\nassistant: A cat.\n\nuser: Andnow?",
        ours,
        "1 + 1?",
    ]

"""The first prompt: a question's own system message, or ours for a plain-text question."""

import asyncio

import pytest

import agentrl
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.resolved_env import resolve_env
from tests.data.rows import write_jsonl

CHAT = [{"role": "user", "content": "1 + 1?"}]
SYSTEM = [{"role": "system", "content": "Be brief."}, *CHAT]
BARE, PROMPT, OWN = (
    {"answer": "2", **row} for row in ({"problem": "1 + 1?"}, {"prompt": CHAT}, {"prompt": SYSTEM})
)
OURS = "Think about the question"


def first_message(tmp_path, row, translator=(), **kwargs):
    """Return the system message and the text of a row's first prompt."""
    path = write_jsonl(tmp_path / "rows.jsonl", [row])
    config = EnvConfig(
        id="QA-v0",
        kwargs={"data": str(path), "grade": "none", **kwargs},
        translator_kwargs=dict(translator),
    )
    runner = EnvRunner(resolve_env(config), None)

    async def compose():
        step = await runner.reset(0)
        return await runner.message(step.observation)

    try:
        message = asyncio.run(compose())
    finally:
        runner.close()
    return runner.instructions if message.system is None else message.system, message.text


@pytest.mark.parametrize(
    ("row", "kwargs", "translator", "system"),
    [
        (BARE, {}, {}, OURS),
        (BARE, {}, {"instruct": False}, ""),
        (BARE, {}, {"instructions": "Count."}, "Count."),
        (BARE, {"template": "{{ content }} Answer with a digit."}, {}, ""),
        (BARE, {"template": "{{ content }}"}, {"instruct": True}, OURS),
        (PROMPT, {}, {}, ""),
        (PROMPT, {}, {"instruct": True}, OURS),
        (PROMPT, {}, {"instructions": "Count."}, "Count."),
        (OWN, {}, {}, "Be brief."),
        (OWN, {}, {"instruct": True}, "Be brief."),
        (OWN, {}, {"instruct": False}, "Be brief."),
        (OWN, {}, {"instructions": "Count."}, "Be brief."),
        ({**BARE, "system": "Be brief."}, {}, {}, "Be brief."),
    ],
)
def test_a_questions_own_system_message_replaces_ours(tmp_path, row, kwargs, translator, system):
    found, text = first_message(tmp_path, row, translator, **kwargs)
    assert found.startswith(system) if system else found == ""
    assert text == ("1 + 1? Answer with a digit." if "digit" in str(kwargs) else "1 + 1?")


def test_instructions_that_are_not_to_be_shown_are_refused():
    with pytest.raises(ConfigError, match="not shown with instruct=false; remove one"):
        agentrl.make_translator("QA-v0", {"instruct": False, "instructions": "Count."})


def test_white_space_around_a_template_is_removed_but_that_of_the_question_stays(tmp_path):
    row = {**BARE, "problem": " 1 + 1?\n"}
    assert first_message(tmp_path, row, template="\nSo:{{ content }}\n")[1] == "So: 1 + 1?\n"


def test_recorded_questions_are_trained_on_with_their_own_system_messages(tiny_vlm, tmp_path):
    from agentrl.config import EvalConfig, WarmStartConfig, from_dict
    from agentrl.policies.chat.chat_encoder import ChatEncoder
    from agentrl.training.demonstrations.demonstration_dataset import rerender_demonstrations
    from agentrl.training.demonstrations.demonstration_filter import select_demonstrations

    path = write_jsonl(tmp_path / "rows.jsonl", [OWN, {"prompt": "1 + 1?", "answer": "2"}])
    config = from_dict(
        {
            "run": {"dir": str(tmp_path / "runs"), "name": "played"},
            "env": {"id": "QA-v0", "kwargs": {"data": str(path)}, "max_turns": 1},
            "logging": [],
        }
    )
    agentrl.evaluate(config, policy="expert", episodes=2)
    (folder,) = (tmp_path / "runs").iterdir()
    others = EvalConfig(first_seed=7_000_000)
    warm = WarmStartConfig(recorded=[str(folder)])
    chosen = select_demonstrations(warm, resolve_env(config.env), config.model, others)
    assert chosen.has_other_instructions == 0
    shown = rerender_demonstrations(
        chosen.episodes, resolve_env(config.env), ChatEncoder(tiny_vlm), 64
    )
    texts = [ChatEncoder(tiny_vlm).text(d.episode.turns[0].prompt_ids) for d in shown]
    assert sorted(text.count("Be brief.") for text in texts) == [0, 1]
    assert sorted(text.count(OURS) for text in texts) == [0, 1]

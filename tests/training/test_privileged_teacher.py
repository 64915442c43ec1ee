"""The teacher's prompts, which say what those of the policy do not."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.check.support.sample_steps import sample_turn, scored_episode
from agentrl.config import Config, algorithm_config
from agentrl.errors import ConfigError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.training.privileged_teacher import PrivilegedTeacher
from agentrl.training.trainer.training_samples import build_training_samples
from agentrl.types import Message, Outcome, TokenScores

TEXT = "The target is {target[0]}, {{not}} {color}."


@pytest.fixture(scope="module")
def encoder(tiny_vlm):
    return ChatEncoder(tiny_vlm)


def screen(seed):
    image = np.random.default_rng(seed).integers(0, 255, (56, 56, 3), np.uint8)
    return Message(role="user", text="Look: <image> Where?", images=(image,))


@pytest.fixture
def scored(encoder):
    """Two turns of a conversation about screens."""
    talk, turns = Conversation(encoder, "Play."), []
    for number, reply in enumerate(["left", "up a bit"]):
        prompt = talk.observe(screen(number))
        ids = (*encoder.text_ids(reply), encoder.end_id)
        talk.answer(ids)
        turn = replace(
            sample_turn(len(ids), None), prompt_ids=prompt.token_ids, reply_ids=ids,
            images=prompt.images, info={"target": [number + 4], "color": "red"},
        )  # fmt: skip
        turns.append(turn)
    made = scored_episode(turns, (0.0, 1.0))
    info = {"target": [3], "color": "blue"}
    return replace(made, episode=replace(made.episode, reset_info=info))


def test_each_turn_is_scored_after_a_message_that_ends_with_the_state_it_starts_in(encoder, scored):
    asked = []

    def score(sequences):
        asked.extend(sequences)
        return [tuple(100.0 * n + k for k in range(s.num_sampled)) for n, s in enumerate(sequences)]

    void = scored_episode([sample_turn(2, None)], (0.0,), Outcome.DEVICE_ERROR).episode
    teacher = PrivilegedTeacher(TEXT, encoder, score)
    none, found = teacher.score([void, scored.episode])
    assert none == ()
    first, second = scored.episode.turns
    numbers = [*range(len(first.reply_ids)), *(100 + k for k in range(len(second.reply_ids)))]
    assert list(found) == numbers
    for turn, sequence, said in zip(
        (first, second), asked, ("3, {not} blue", "4, {not} red"), strict=True
    ):
        prompt = sequence.token_ids[: sequence.sampled_positions[0]]
        assert sequence.token_ids[len(prompt) :] == turn.reply_ids
        assert sequence.images == turn.images
        plain, full = (
            encoder._tokenizer.decode(turn.prompt_ids, False),
            encoder._tokenizer.decode(prompt, False),
        )
        end = "Where?<|im_end|>\n<|im_start|>assistant\n"
        assert plain.endswith(end)
        assert full == plain.removesuffix(end) + end.replace("?", f"?\nThe target is {said}.")
    assert teacher.score([void]) == [()]


def test_the_teachers_scores_reach_the_tokens_of_a_shared_conversation(encoder, scored):
    config = algorithm_config("opd", teacher="self", privileged=TEXT, reward_weight=0.0)
    algorithm = load_algorithm(config)
    counts = [len(turn.reply_ids) for turn in scored.episode.turns]
    asked = []

    def score_tokens(sequences):
        asked.extend(sequences)
        return [TokenScores(old_logprobs=(-1.0,) * one.num_sampled) for one in sequences]

    teacher = PrivilegedTeacher(
        TEXT, encoder, lambda found: [(-0.5 * n,) * s.num_sampled for n, s in enumerate(found)]
    )
    built = build_training_samples(
        [[scored]], algorithm, score_tokens, max_new_tokens=8, version=0, seed=0, teacher=teacher
    )
    assert len(asked) == 1  # both turns are one conversation
    (sample,) = built.samples
    assert sample.advantages == (1.0,) * counts[0] + (0.5,) * counts[1]


def test_the_policy_itself_scores_the_teachers_prompts(make_learner, encoder, scored):
    config = Config(algorithm=algorithm_config("opd", teacher="self", privileged=TEXT))
    learner = make_learner(config)
    seen = []

    def score(sequences):
        seen.extend(sequences)
        return learner.score_teacher(sequences)

    (found,) = PrivilegedTeacher(TEXT, encoder, score).score([scored.episode])
    expected = learner._logprobs(learner._policy, seen)
    assert found == tuple(n for own in expected for n in own)
    (scores,) = learner.score_tokens(seen[:1])
    assert scores.teacher_logprobs is None
    assert learner._models.teacher is None


def test_a_template_that_cannot_be_filled_is_an_error_with_the_names(encoder, scored):
    def refused(text):
        with pytest.raises(ConfigError) as error:
            PrivilegedTeacher(text, encoder, lambda found: []).score([scored.episode])
        return str(error.value)

    assert "no entry 'tarjet' (did you mean 'target'?). Known: target, color" in refused("{tarjet}")
    assert "cannot be filled with the info of Sample-v0" in refused("{target[7]}")
    cut = replace(scored.episode.turns[0], prompt_ids=scored.episode.turns[0].prompt_ids[:-1])
    headless = replace(scored, episode=replace(scored.episode, turns=(cut,)))
    with pytest.raises(ConfigError, match="does not end with a message that could be extended"):
        PrivilegedTeacher("x", encoder, lambda found: []).score([headless.episode])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"teacher": "self"}, "algorithm.teacher=self: needs algorithm.privileged"),
        ({"privileged": "at {x"}, "algorithm.privileged='at {x': expected '}'"),
        ({"privileged": "at {}"}, "algorithm.privileged='at {}': name an entry"),
        (
            {"kl": {"add_to": "reward"}, "reward_weight": 0.0},
            "algorithm.kl.add_to=reward: has no effect with algorithm.reward_weight=0",
        ),
    ],
)
def test_settings_of_a_teacher_that_contradict_each_other_are_refused(settings, reason):
    with pytest.raises(ConfigError) as error:
        algorithm_config("opd", **settings).validate_for_training()
    assert reason in str(error.value)

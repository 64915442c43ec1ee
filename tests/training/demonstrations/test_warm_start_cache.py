import json
from pathlib import Path

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.runs.run_folder import RunFolder
from agentrl.training.demonstrations import warm_start_cache


def settings(*overrides):
    return configuration.load("number_game", overrides)


def cached(config):
    envs = [resolve_env(job.env) for job in config.environments().values()]
    mixture = config.mixture_weights()
    return warm_start_cache.cache_folder(
        config.warm_start, config.model, envs, mixture, config.devices, config.seed
    )


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "env.kwargs={rounds: 5}",
        "env.translator_kwargs={instruct: true}",
        "warm_start.steps=3",
        "warm_start.player=expert",
        "model.tiny={layers: 2}",
        "devices.size=[540, 960]",
    ],
)
def test_cache_depends_on_what_affects_the_warm_start(override):
    assert cached(settings()) != cached(settings(override))


def test_cache_depends_on_the_weights_of_a_mixture():
    def folder(weight):
        levels = f"{{name: one}}, {{name: two, weight: {weight}, env: {{kwargs: {{rounds: 2}}}}}}"
        return cached(settings(f"mixture=[{levels}]"))

    assert folder(1) == folder(1.0) != folder(2)


def test_cache_depends_on_the_content_of_a_data_set(tmp_path):
    path = tmp_path / "questions.jsonl"

    def folder():
        long = "{{ problem }}" + " and so on" * 100  # which is no path
        kwargs = f"env.kwargs={{data: {{train: '{path}'}}, template: '{long}'}}"
        return cached(settings("env.id=QA-v0", "env.translator_kwargs={}", kwargs))

    path.write_text('{"problem": "1 + 1?", "answer": 2}')
    before = folder()
    assert folder() == before
    path.write_text('{"problem": "1 + 2?", "answer": 3}')
    assert folder() != before


def test_cache_depends_on_the_code_of_the_user(tmp_path, monkeypatch):
    example = Path(__file__).parents[3] / "examples" / "own_environment.py"
    code = example.read_text().replace("own_environment", "own_button").replace("Lit", "Own")
    (tmp_path / "own_button.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    job = {"env": {"id": "own_button:OwnButton-v0"}, "warm_start": {"player": "guesser"}}
    config = configuration.from_dict(job)
    before = cached(config)
    assert cached(config) == before
    (tmp_path / "own_button.py").write_text(f"{code}\n# plays differently now")
    assert cached(config) != before


def test_cache_depends_on_the_version_of_the_package(monkeypatch):
    before = cached(settings())
    monkeypatch.setattr(warm_start_cache, "__version__", "99.0")
    assert cached(settings()) != before


def test_cache_ignores_what_does_not_affect_the_warm_start(tmp_path):
    same = settings("optim.lr=1", "train.steps=3", "rollout.engine=hf", f"run.dir={tmp_path}")
    assert cached(settings()) == cached(same)


def test_without_a_cache_there_is_no_folder():
    assert cached(settings("warm_start.cache=null")) is None


def test_warm_start_of_a_4_bit_model_is_not_cached():
    four_bits = "model.lora.rank=4", "model.lora.base=nf4"
    assert cached(settings(*four_bits)) is None
    assert cached(settings("model.lora.rank=4")) is not None
    assert cached(settings("model.lora.base=nf4")) is not None


def test_run_keeps_a_copy_of_its_prompt(tmp_path):
    def instructions(folder):
        env = configuration.load(folder.path / "config.yaml").env
        return instructions_for(env, open_translator(resolve_env(env)))

    template = tmp_path / "mine.jinja"
    template.write_text("Play well. {{ instructions }}")
    config = settings(f"env.prompt={template}", f"run.dir={tmp_path}")
    run = RunFolder.create(config.run, "x")
    run.save_config(config.to_dict())
    template.write_text("Play badly.")
    assert instructions(run) == "Play well."
    other = RunFolder.create(config.run, "y")
    other.save_config(config.to_dict())
    assert instructions(other) == "Play badly."
    assert instructions(run) == "Play well."
    # A resumed run is saved again: with its own prompt, or with the one that replaces it.
    run.save_config(configuration.load(run.path / "config.yaml").to_dict())
    assert instructions(run) == "Play well."
    run.save_config(config.to_dict())
    template.unlink()
    assert instructions(run) == "Play badly."


def test_warm_start_that_cannot_be_cached_is_not_lost(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    warm = settings().warm_start
    assert not warm_start_cache.save_to_cache(
        tmp_path / "file" / "clone", warm, "NumberGame-v0", None
    )
    assert "could not be cached" in caplog.text


def has_warm_start(folder, *overrides):
    config = settings(*overrides)
    return warm_start_cache.has_warm_start(folder, config.warm_start, config.env.id)


def write_marker(folder, *overrides):
    config = settings(*overrides)
    warm_start_cache.write_marker(folder, config.warm_start, [config.env.id])


def test_marker_names_the_environment_and_the_warm_start(tmp_path):
    assert not has_warm_start(tmp_path)
    write_marker(tmp_path)
    (file,) = tmp_path.iterdir()
    had = {"player": "mediocre", "episodes": 300, "steps": 600}
    assert json.loads(file.read_text()) == {"warm_starts": {"NumberGame-v0": had}}
    assert has_warm_start(tmp_path, "env.id=agentrl.envs:NumberGame-v0")
    assert not has_warm_start(tmp_path, "warm_start.repeat=true")


def test_skipped_warm_start_keeps_the_marker(tmp_path):
    write_marker(tmp_path)
    write_marker(tmp_path, "warm_start.steps=3")
    assert '"steps": 600' in (tmp_path / "agentrl.json").read_text()
    write_marker(tmp_path, "warm_start.steps=3", "warm_start.repeat=true")
    assert '"steps": 3' in (tmp_path / "agentrl.json").read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"warm_starts": 3}'])
def test_damaged_marker_is_a_config_error(text, tmp_path):
    (tmp_path / "agentrl.json").write_text(text)
    with pytest.raises(ConfigError, match=r"agentrl\.json: cannot be read"):
        has_warm_start(tmp_path)

"""A user's mistake fails at once: one clear message, exit code 2, no traceback, no run folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import accelerators
from agentrl import config as configuration
from agentrl.cli import run
from agentrl.cluster import node_discovery
from agentrl.errors import ConfigError
from agentrl.policies import tiny_model
from agentrl.replay.recorder import Recorder
from agentrl.training.plan import model_checks
from agentrl.types import Outcome
from tests.replay.episodes import scored

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))
GAME = "configs/number_game.yaml"


@pytest.fixture
def small_machine(monkeypatch):
    """Two cores, no GPU, no flash-attn and no remote cluster."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(node_discovery, "cores", lambda: 2)
    monkeypatch.setattr(accelerators, "count", lambda: 0)
    monkeypatch.setattr(model_checks, "find_spec", lambda name: None)


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("config", [*CONFIGS, *EXAMPLES], ids=lambda path: path.stem)
def test_every_configuration_resolves(config, capsys, monkeypatch):
    monkeypatch.setattr("agentrl.training.plan.trial_episodes._BUDGET_S", 0.0)  # tested there
    # As on a machine with the memory and the time for models of billions of parameters.
    monkeypatch.setattr("agentrl.training.plan.dry_run.misfits_without_gpus", lambda *_: [])
    given = ["devices.source=virtual:4"] if "source: ???" in config.read_text() else []
    assert run(["train", str(config), *given, "--dry-run"]) == 0
    _, _, unchecked = capsys.readouterr().out.partition("not checked:\n")
    assert unchecked.startswith("- memory and disk space (no GPU found; `agentrl plan` computes ")


def test_a_setting_without_default_must_be_given(capsys):
    assert run(["train", "number_game_phone", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ConfigError: ")
    assert "devices.source has no default" in said
    assert "'devices.source=...'" in said


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.stpes=3", ["train.stpes=3: no such setting (did you mean 'steps'?)"]),
        ("train.foo=3", ["train.foo=3: no such setting; train has steps, mode, lag"]),
        ("bar=3", ["no such setting; the configuration has seed, run,", " more (agentrl train"]),
        ("optim.learning_rate=1", ["no such setting (did you mean 'optim.lr'?)"]),
        ("rollout.n=4", ["rollout.n=4: no such setting (did you mean 'rollout.group_size'?)"]),
        ("steps=3", ["ConfigError: steps=3: no such setting (did you mean 'train.steps'?)"]),
        ("eval.steps=3", ["ConfigError: eval.steps=3: no such setting", "mean 'eval.every' or"]),
        ("train.save_every=1", ["no such setting (did you mean 'checkpoint.every'?)"]),
        ("batch_size=8", ["did you mean 'rollout.groups' or 'algorithm.minibatch'?)"]),
        ("train.steps=many", ["ConfigError: train.steps=many: must be a whole number, not 'many'"]),
        (
            "train={steps: many}",
            ["train={steps: many}: train.steps: must be a whole number, not 'many'"],
        ),
        ("train.steps={a: 1", ["ConfigError: train.steps={a: 1: cannot be read: did not find"]),
        (
            "env.translator_kwargs.text={{ seed }}",
            ["text, write env.translator_kwargs.text='\"{{ seed }}\"'"],
        ),
        ("train.steps=${nope}", ["ConfigError: train.steps: Interpolation key 'nope'"]),
        ("train.ranks=0", ["train.ranks=0", "above 0"]),
        ("train.ranks=64", ["train.ranks=64: ", "2 cores", "train.ranks=2 or fewer"]),
        ("rollout.engine=vlm", ["ConfigError: rollout.engine=vlm: ", "did you mean 'vllm'"]),
        ("rollout.engine=remote", ["rollout.engine=remote", "`agentrl eval`"]),
        ("rollout.endpoint.url=127.0.0.1:8000", ["rollout.endpoint.url", "http://HOST:PORT/v1"]),
        ("rollout.endpoint.url='http://h:99999/v1'", ["rollout.endpoint.url", "http://HOST"]),
        ("rollout.endpoint={headers: {X-Api-Key: k}}", ["headers.X-Api-Key", "api_key_env"]),
        ("rollout.endpoint={headers: {'a b': k}}", ["rollout.endpoint.headers", "a valid header"]),
        ("rollout.endpoint.extra_body={stream: true}", ["extra_body.stream", "remove it"]),
        ("rollout.endpoint.extra_body={temperature: 1}", ["set rollout.temperature instead"]),
        ("rollout.temperature=0", ["rollout.temperature", "above 0"]),
        ("rollout.top_logprobs=21", ["rollout.top_logprobs=21", "at most 20"]),
        ("rollout.temperature=1e-3", ["rollout.temperature", "at least 0.01"]),
        ("rollout.temperature=1e300", ["rollout.temperature", "at most 100"]),
        ("rollout.max_context=99999999999", ["rollout.max_context", "at most 10,000,000"]),
        ("model.lora.rank=99999999", ["model.lora.rank", "at most 10,000"]),
        ("model.lora.base=nf4", ["model.lora.base=nf4", "model.lora.rank is 0"]),
        ("model.lora.alpha=64", ["model.lora.alpha=64: has no effect", "model.lora.rank is 0"]),
        ("model.lora.targets=[q_proj]", ["model.lora.targets=['q_proj']", "lora.rank is 0"]),
        (
            "model.attention=flash_attention_2",
            ["needs flash-attn, which is not inst", "agentrl-screens[flash]"],
        ),
        (
            "algorithm.kl.coefficient=0.1",
            ["kl.coefficient=0.1: has no effect", "kl.add_to=loss or", "reset it to 0.001"],
        ),
        ("rollout=3", ["rollout=3: must be a mapping, such as {engine: ...}", "not 3"]),
        ("rewards=[a:b]", ["rewards[0]: must be a mapping, such as {function: ...}", "not 'a:b'"]),
        ("rollout.groups=[[1,2]]", ["rollout.groups=[[1,2]]: must be a whole number, not [[1, 2]"]),
        ("rollout.groups=null", ["rollout.groups=null: must be a whole number, not null"]),
        ("env.kwargs=[1]", ["env.kwargs=[1]: must be a mapping, such as {name: value}, not [1]"]),
        ("devices.allow=a.b", ["devices.allow=a.b: must be a list, such as [A, B], not 'a.b'"]),
        ("train.offload=maybe", ["train.offload=maybe: must be true or false, not 'maybe'"]),
        ("algorithm.kl.target=0.1", ["kl.target=0.1: has no effect", "reset it to null"]),
        ("algorithm.loss=ppp", ["algorithm.loss.name=ppp", "did you mean 'ppo'"]),
        ("algorithm.critic.lr=1", ["no such setting; algorithm has name, loss"]),
        ("algorithm=absent.py:Mine", ["algorithm.name=absent.py:Mine", "no such file"]),
        ("algorithm=json:JSONDecoder", ["is not a subclass", "Algorithm"]),
        ("env.max_turns=999999999999", ["env.max_turns=999999999999", "at most 100,000", "memory"]),
        ("env.horizon={start: 24}", ["env.horizon.start=24", "below env.max_turns=24", "remove"]),
        ("env.start={turns: 24}", ["env.start.turns=24", "below env.max_turns=24"]),
        ("env.start={player: exprt}", ["env.start.player=exprt", "did you mean 'expert'"]),
        ("env.horizon={steps: 0}", ["env.horizon.steps=0", "above 0"]),
        ("seed=-1", ["seed=-1", "below 0"]),
        ("run.keep_gb=0", ["run.keep_gb=0", "above 0, or null"]),
        ("env.id=NumberGane-v0", ["NumberGane-v0", "did you mean 'NumberGame-v0'"]),
        ("env.id=nowhere:Game-v0", ["nowhere", "cannot be imported"]),
        ("env.history=window:0", ["env.history", "window:k"]),
        ("env.prompt=missing.jinja", ["missing.jinja", "no such template"]),
        ("env.translator_kwargs={mood: good}", ["env.translator_kwargs", "mood"]),
        ("env.kwargs={cards: 5}", ["env.kwargs.cards=5: must be 3 or 4"]),
        ("eval.kwargs={cards: 5}", ["eval.kwargs.cards=5: must be 3 or 4"]),
        ("rewards=[{function: 'agentrl.rewards.number_game:outcom'}]", ["did you mean 'outcome'"]),
        ("rewards=[{function: 'nothing.py:reward'}]", ["nothing.py", "no such file"]),
        ("algorithm.name=gropo", ["gropo", "did you mean 'grpo'"]),
        ("model.path=/no/such/folder", ["/no/such/folder", "no such folder"]),
        ("model.tiny={layers: -3}", ["model.tiny.layers must be a whole number above 0, got -3"]),
        ("model.tiny={heads: two}", ["model.tiny.heads must be a whole number", "'two'"]),
        ("model.tiny={hiden: 64}", ["hiden", "did you mean 'hidden'"]),
        ("warm_start.player=expret", ["expret", "did you mean 'expert'"]),
        ("logging=[consol]", ["consol", "did you mean 'console'"]),
        ("devices.source=virtual:none", ["devices.source", "virtual:N"]),
        ("eval.first_seed=99999999999", ["eval.first_seed"]),
        ("no_equals_sign", ["key=value"]),
        ("train.steps = 3", ["key=value", "without spaces before ="]),
        ("checkpoint.every=0", ["checkpoint.every=0", "above 0"]),
        ("optim.betas=[0.9]", ["optim.betas", "two decay rates"]),
        ("devices.size=[720]", ["devices.size", "[width, height]"]),
        ("devices.mask=[[0.5, 0.1, 0.2, 0.3]]", ["devices.mask", "[left, top, right, bottom]"]),
        ("devices.mask=[[0, 0, 1]]", ["devices.mask", "[left, top, right, bottom]"]),
        ("devices.mask=[0.1]", ["devices.mask"]),
        ("devices.allow=[[1]]", ["devices.allow=[[1]]", "[1] is not a plain value", "[A, B]"]),
        ("devices.size=[[720], 1280]", ["devices.size=[[720], 1280]", "plain value"]),
        ("devices.allow=[chrome]", ["devices.allow", "'chrome'", "com.example.app"]),
        ("env.kwargs={allow: [com.a]}", ["env.kwargs.allow", "devices.allow"]),
        ("warm_start.episodes=0", ["warm_start.episodes=0"]),
        ("optim.lr=.nan", ["optim.lr=nan", "finite"]),
        ("warm_start.phase_weights.final=.inf", ["warm_start.phase_weights.final=inf", "finite"]),
        ("rewards=[{function: 'a:b', weight: .nan}]", ["rewards[0].weight=nan", "finite"]),
        ("warm_start.player=null", ["warm_start.player=null", "warm_start.recorded"]),
        ("warm_start.recorded=[[1]]", ["warm_start.recorded=[[1]]", "[1] is not a plain value"]),
        ("warm_start.recorded=[nowhere]", ["warm_start.recorded", "no such run"]),
        (
            "warm_start.recorded_filter.success=true",
            ["warm_start.recorded_filter", "no runs to filter"],
        ),
        ("warm_start.recorded_filter.succ=true", ["warm_start.recorded_filter.succ", "'success'"]),
        ("warm_start.phase_weights.final=-1", ["warm_start.phase_weights.final=-1.0", "below 0"]),
        ("optim.betas=[0.9, 1.0]", ["optim.betas", "below 1"]),
        ("algorithm.discount=1.5", ["algorithm.discount=1.5", "at most 1"]),
        ("algorithm.loss.clip_low=-0.2", ["algorithm.loss.clip_low=-0.2", "below 0"]),
        ("optim.grad_clip=0", ["optim.grad_clip=0", "above 0"]),
        ("optim.lr_final_ratio=2", ["optim.lr_final_ratio=2", "at most 1"]),
        ("model.max_pixels=0", ["model.max_pixels=0", "above 0"]),
        ("model.image_size=[99999, 1]", ["model.image_size", "16384"]),
        ("devices.size=[1, 1]", ["devices.size", "64 to 4096"]),
        ("devices.source=5", ["devices.source=5", "virtual:N"]),
        ("devices.app=pages", ["devices.app", "'pages'", "'page'"]),
        ("devices.app=page", ["devices.app=page", "virtual:32", "devices.app=auto"]),
        ("devices.source=[5554]", ["devices.source=[5554]", "serials"]),
        ("rollout={launcher: local, actors: 2}", ["rollout.actors=2", "launcher=local"]),
        ("rollout.groups=99999", ["rollout.groups", "at most 100000"]),
        ("eval.episodes=1000000", ["eval.episodes=1000000", "at most 100,000"]),
        ("devices.deadlines.command_s=1e300", ["devices.deadlines.command_s=1e+300", "at most"]),
        ("rewards.0.weight=2", ["rewards.0.weight=2: rewards: must be a list of mappings"]),
        ("warm_start.cache=~nosuchuser/x", ["warm_start.cache='~nosuchuser/x'", "as a path"]),
        ("model.path=~nosuchuser/x", ["model.path='~nosuchuser/x'", "cannot be used as a path"]),
        (f"env.prompt={'x' * 300}", ["env.prompt=", "too long"]),
        ('env.prompt="a\\0b"', ["env.prompt=", "null byte"]),
        ("env.history=window:²", ["env.history", "window:k"]),
        ("model.path=configs/mine", ["model.path=configs/mine", "no such folder"]),
        ("env.kwargs={rouds: 5}", ["env.kwargs.rouds", "did you mean 'rounds'", "memory"]),
        ("env.kwargs={device: emulator-5554}", ["env.kwargs.device", "devices.source"]),
        ("env.kwargs={mode: selct}", ["env.kwargs.mode='selct'", "tap, select"]),
        (
            "env={kwargs: {mode: select}, translator_kwargs: {mode: tap}}",
            ["env.translator_kwargs.mode=tap", "env.kwargs.mode=select", "set it only once"],
        ),
        (
            "rollout.engine_kwargs={gpu_memory_utilisation: 0.3}",
            ["rollout.engine_kwargs.gpu_memory_utilisation", "did you mean 'gpu_memory_util"],
        ),
        (
            "rollout={engine: hf, engine_kwargs: {max_bach: 3}}",
            ["rollout.engine_kwargs.max_bach", "did you mean 'max_batch'"],
        ),
        ("rollout={engine: hf, engine_kwargs: {dtype: bfloat16}}", ["engine_kwargs.dtype: hf"]),
        ("rollout.max_new_tokens=9999", ["rollout.max_new_tokens=9999", "at most"]),
        ("run.name=../x", ["run.name='../x'", "plain folder name"]),
        ("run.name=' '", ["run.name=' '", "plain folder name"]),
        ('run.name="a\\nb"', [r"run.name='a\nb'", "without slashes, control characters"]),
        ('run.name="\\e[2J"', [r"run.name='\x1b[2J'", "plain folder name"]),
        (f"run.name={'x' * 256}", ["run.name='xxx", "at most 255 bytes"]),
        ("rollout.temperature=2.5", ["rollout.temperature=2.5", "engine=vllm; the maximum is 2"]),
    ],
)
def test_a_mistake_gets_one_message(override, words, tmp_path, capsys, small_machine):
    assert run(["train", GAME, "seed=3", override, f"run.dir={tmp_path / 'runs'}"]) == 2
    out, said = capsys.readouterr()
    assert not out  # such as the budget of a job that cannot start
    assert said.startswith("ConfigError: ")
    assert all(word in said for word in words), said
    assert "seed=3" not in said  # a correct override is not blamed
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


def test_a_mistake_in_a_file_is_reported_with_its_name(tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text("train: {steps: many}")
    assert run(["train", str(file), "seed=3"]) == 2
    assert capsys.readouterr().err.startswith(
        f"ConfigError: {file}: train.steps: must be a whole number, not 'many'"
    )


@pytest.mark.parametrize(
    "override",
    [
        "api_key_env=sk-tOpSecret",
        "url='http://me:sk-tOpSecret@host/v1'",
        "url='http://host/v1?key=sk-tOpSecret'",
        "headers={Authorization: 'Bearer sk-tOpSecret'}",
    ],
)
def test_a_misplaced_api_key_is_rejected_and_not_printed(override, capsys):
    assert run(["eval", "sokoban", "rollout.engine=remote", f"rollout.endpoint.{override}"]) == 2
    said = capsys.readouterr().err
    assert "api_key_env" in said
    assert "tOpSecret" not in said


def test_an_existing_run_name_is_rejected_with_one_message(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert run(["train", GAME, f"run.dir={tmp_path}", "run.name=mine"]) == 2
    out, said = capsys.readouterr()
    assert not out
    assert f"--resume {tmp_path / 'mine'}" in said


def test_a_model_missing_from_the_hub_is_reported_before_anything_starts(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    job = ["train", GAME, "model.path=owner/model", f"run.dir={tmp_path / 'runs'}"]
    assert run(job) == 2
    out, said = capsys.readouterr()
    assert not out
    assert said.startswith(
        "ConfigError: model.path=owner/model is not a folder, and the Hugging Face Hub "
    )
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_dry_run_does_not_query_the_hub_and_says_so(capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", None)
    assert run(["train", GAME, "model.path=owner/model", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "owner/model (not a local folder; looked up on the Hugging Face Hub when" in said


def test_a_group_size_of_one_is_rejected(tmp_path, capsys):
    job = ["train", GAME, "rollout.group_size=1", f"run.dir={tmp_path / 'runs'}"]
    assert run(job) == 2
    said = "rollout.group_size=1: algorithm.name=state_grpo compares the episodes"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("length", [0, 100, -100])
def test_truncated_weights_are_reported(length, tmp_path, capsys):
    file = tiny_model.build(tmp_path / "model", 0) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    job = ["train", GAME, f"model.path={file.parent}", f"run.dir={tmp_path / 'runs'}"]
    assert run(job) == 2
    assert capsys.readouterr().err.startswith(f"ConfigError: {file} cannot be read as weights")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--outcome", "viod"], "terminated"), (["--split", "test"], "train, eval, demo"),
        (["--last", "-1"], "--last"),
    ],
)  # fmt: skip
def test_an_invalid_episode_filter_is_rejected(arguments, word, tmp_path, capsys):
    (tmp_path / "episodes").mkdir()
    assert run(["episodes", str(tmp_path), *arguments]) == 2
    assert word in capsys.readouterr().err


def test_a_filter_that_matches_nothing_lists_what_there_is(tmp_path, capsys):
    with Recorder(tmp_path) as recorder:
        lost = scored("a", outcome=Outcome.TIMEOUT, turns=0)
        recorder.episode(lost, split="train", step=1)
    assert run(["episodes", str(tmp_path), "--outcome", "void"]) == 0
    assert "1 of 1 episodes" in capsys.readouterr().out
    assert run(["episodes", str(tmp_path), "--split", "eval"]) == 0
    assert "No episodes match. The run has 1 train timeout" in capsys.readouterr().out


def test_an_unreachable_serial_is_reported(adb_server, tmp_path, capsys):
    source = "devices.source=['127.0.0.1:1']"
    assert run(["train", GAME, source, f"run.dir={tmp_path / 'runs'}"]) == 2
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert "Ready phones in the list: none" in said
    assert not (tmp_path / "runs").exists()


def test_missing_configuration_is_answered_with_a_suggestion(capsys):
    assert run(["train", "number_gane"]) == 2
    assert "did you mean 'number_game'" in capsys.readouterr().err


def test_an_invalid_run_directory_is_rejected():
    with pytest.raises(ConfigError, match=r"run\.dir='~nosuchuser/x': cannot be used"):
        configuration.load(GAME, ["run.dir=~nosuchuser/x"])


@pytest.mark.parametrize("name", ["~nosuchuser/job.yaml", "x" * 300, "a\0b", "\udcff"])
def test_an_invalid_configuration_path_is_rejected(name, capsys):
    assert run(["train", name]) == 2
    assert capsys.readouterr().err.startswith("ConfigError: ")


@pytest.mark.parametrize(
    "text",
    [
        "{{ 1 / 0 }}", "{% include 'other' %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ instructions.nothing }}", "{% if %}",
    ],
)  # fmt: skip
def test_a_failing_prompt_template_is_reported(text, tmp_path, capsys):
    file = tmp_path / "prompt.jinja"
    file.write_text(text)
    assert run(["train", GAME, f"env.prompt={file}", f"run.dir={tmp_path / 'runs'}"]) == 2
    assert capsys.readouterr().err.startswith(f"ConfigError: env.prompt={file}: cannot be")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("text", ["train: [", "- a list", "train: {steps: {a: 1}}"])
def test_a_file_that_is_not_a_configuration_is_rejected(text, tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert run(["train", str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert len(said.splitlines()) <= 2


def test_the_whole_program_shows_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "agentrl", "train", GAME, "train.stpes=3"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr


def test_importing_agentrl_loads_nothing_heavy():
    heavy = {"torch", "ray", "transformers", "vllm"}
    parts = {"numpy", "gymnasium", "omegaconf", "yaml", "jinja2"}
    code = f"""import agentrl, agentrl.cli, sys
print(*({parts} & sys.modules.keys()))
agentrl.make
print(*({heavy} & sys.modules.keys()))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_dry_run_says_what_it_did_not_check(capsys, monkeypatch):
    monkeypatch.setattr("agentrl.training.plan.job_plan.check_loggers", lambda names: None)
    monkeypatch.setattr("agentrl.training.monitoring.logger.Logger.is_installed", lambda: True)
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    settings = ["logging=[file, wandb]", "devices.source=emulator-5554"]
    monkeypatch.setattr("agentrl.devices.check_source", lambda *arguments, **keywords: None)
    assert run(["train", GAME, *settings, "--dry-run"]) == 0
    unchecked = capsys.readouterr().out.partition("not checked:\n")[2]
    for what in ("memory", "NumberGame-v0 needs a phone", "whether wandb accepts the API key"):
        assert what in unchecked


@pytest.mark.parametrize("command", [["train"], ["eval", "--policy=random"]], ids=lambda c: c[0])
def test_a_failed_start_leaves_no_run_folder(command, tmp_path, capsys, monkeypatch):
    async def fails(*arguments, **keywords):
        raise ConfigError("the phones cannot be opened")

    for module in ("trainer.open_trainer", "evaluation.evaluate"):
        monkeypatch.setattr(f"agentrl.training.{module}.open_rollouts", fails)
    settings = [f"run.dir={tmp_path}", "rollout.launcher=local", "rollout.engine=hf"]
    assert run([*command, "frozen_lake", *settings]) == 2
    assert "the phones cannot be opened" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_data_set_in_place_of_a_configuration_is_answered_with_the_command_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n' * 2)
    assert run(["train", "rows.jsonl", "--dry-run"]) == 2
    assert "`agentrl init CONFIG.yaml --data rows.jsonl`" in capsys.readouterr().err

"""The checks of engines, on the example, on built-ins, and on broken copies of the example."""

import inspect
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.check.extensions import engine as checks
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.extension_points import ENGINE
from agentrl.policies.engines.engine import ChatEngine, EngineCapabilities, TokenEngine
from agentrl.weight_sync.transport_choice import built_in

pytestmark = [pytest.mark.filterwarnings("default")]
EXAMPLE = Path(__file__).parents[2] / "examples" / "extend" / "engine.py"
NUMBERS = itertools.count()
CHECKS = [
    checks.check_arguments,
    checks.check_abilities,
    checks.check_replies,
    checks.check_weights,
    checks.check_close,
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", [f"{EXAMPLE}:PlainEngine", "hf"])
def test_the_example_and_the_transformers_engine_pass(name, check):
    check(ENGINE.resolve(name), {})


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("check", CHECKS)
def test_vllm_passes(check):
    pytest.importorskip("vllm")
    check(ENGINE.resolve("vllm"), {})


@pytest.mark.parametrize("name", [one.name for one in ENGINE.extensions()])
def test_the_capabilities_of_built_in_engines_are_consistent(name):
    checks.check_abilities(ENGINE.resolve(name), {})


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("right", "wrong", "check", "words"),
    [
        ("/ (sampling.temperature or 1.0)", "", checks.check_replies, "log-probabilities differ"),
        ("logits[list(adapter.banned_token_ids)] = -torch.inf", "", checks.check_replies, "differ"),
        (", generator=generator", "", checks.check_replies, "a different order"),
        ("*sampling.stop_token_ids", "", checks.check_replies, "does not end at the first"),
        ("< sampling.max_new_tokens", "<= 8", checks.check_replies, "9 tokens"),
        ("check_header(self._model, path)", "pass", checks.check_weights, "lacks a weight"),
        ("self._version = version", "pass", checks.check_weights, "version 0"),
        (
            "self._model.load_state_dict",
            "dict",
            checks.check_weights,
            "published|differ by",
        ),
        ("self._model = None\n", "pass\n", checks.check_close, "still answers"),
    ],
)
def test_a_broken_copy_fails_with_the_reason(tmp_path, right, wrong, check, words):
    head, found, tail = EXAMPLE.read_text().rpartition(right)
    assert found
    path = tmp_path / f"broken_{next(NUMBERS)}.py"
    path.write_text(head + wrong + tail)
    with pytest.raises((AssertionError, EngineError), match=words):
        check(ENGINE.resolve(f"{path}:PlainEngine"), {})


def test_promises_without_a_method_are_found():
    class Sleepless(ENGINE.resolve(f"{EXAMPLE}:PlainEngine")):
        capabilities = EngineCapabilities(sleeps=True)

    with pytest.raises(AssertionError, match="promise sleep"):
        checks.check_abilities(Sleepless, {})


def test_unknown_arguments_are_found_by_the_signature():
    plain = ENGINE.resolve(f"{EXAMPLE}:PlainEngine")
    assert plain.known_kwargs() == ["device"]
    with pytest.raises(ConfigError, match=r"engine_kwargs\.devise.*did you mean 'device'"):
        checks.check_arguments(plain, {"devise": "cpu"})


def test_an_engine_derived_from_vllm_adds_its_arguments_to_those_of_vllm():
    class Mine(ENGINE.resolve("vllm")):
        def __init__(self, settings, *, patience=1, **engine_kwargs): ...

    checks.check_arguments(Mine, {"patience": 2, "gpu_memory_utilization": 0.5})
    with pytest.raises(ConfigError, match=r"engine_kwargs\.patiance.*did you mean 'patience'"):
        checks.check_arguments(Mine, {"patiance": 2})


@pytest.mark.parametrize("size", ["two", 0, -1, 1.5, True, None])
@pytest.mark.parametrize(
    ("engine", "name"),
    [("vllm", "tensor_parallel_size"), ("vllm", "data_parallel_size"), ("sglang", "pp_size")],
)
def test_an_engine_is_divided_among_whole_gpus(engine, name, size):
    with pytest.raises(ConfigError, match=rf"engine_kwargs\.{name} must be a whole.*got {size!r}"):
        ENGINE.resolve(engine).num_gpus({name: size})
    assert ENGINE.resolve(engine).num_gpus({name: 2}) == 2


@pytest.mark.parametrize(
    "settings", [{"speculative_config": {"method": "ngram"}}, {"spec_method": "ngram"}]
)
def test_vllm_refuses_speculative_decoding_before_it_starts(settings):
    with pytest.raises(
        ConfigError, match=rf"{next(iter(settings))} is not supported; vLLM cannot ban"
    ):
        ENGINE.resolve("vllm").check(RolloutConfig(engine="vllm", engine_kwargs=settings))


def test_engines_are_resolved_without_their_libraries():
    code = (
        "import sys; from agentrl.extension_points import ENGINE, TRANSPORT\n"
        "for one in ENGINE.extensions(): ENGINE.resolve(one.name)\n"
        "for one in TRANSPORT.extensions(): TRANSPORT.resolve(one.name)\n"
        "assert not {'torch', 'vllm', 'transformers', 'httpx2', 'sglang'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_check_is_run_here():
    functions = inspect.getmembers(checks, inspect.isfunction)
    own = {f for _, f in functions if f.__module__ == checks.__name__}
    assert {f for f in own if f.__name__.startswith("check_")} == set(CHECKS)
    assert issubclass(ENGINE.resolve("remote"), ChatEngine)
    assert issubclass(ENGINE.resolve("sglang"), TokenEngine)


def row(name: str) -> str:
    """The row of a built-in engine in docs/extending/engine.md."""
    engine = ENGINE.resolve(name)
    able = engine.capabilities
    reached = [n for n, one in built_in().items() if issubclass(engine, one.needs.engine)]
    cells = [
        f"`{name}`",
        *("yes" if able_to else "no" for able_to in (able.trains, able.reproducible, able.sleeps)),
        f"up to {able.max_lora_rank}" if able.max_lora_rank else "merged only",
        "any" if able.max_temperature is None else f"up to {able.max_temperature:g}",
        ", ".join(f"`{n}`" for n in reached) or "none",
    ]
    return f"| {' | '.join(cells)} |\n"


def test_the_documented_table_is_that_of_the_classes():
    table = "".join(row(one.name) for one in ENGINE.extensions() if one.origin == "agentrl")
    assert f"|---|---|---|---|---|---|---|\n{table}\n" in (
        EXAMPLE.parents[2] / "docs" / "extending" / "engine.md"
    ).read_text(encoding="utf-8")

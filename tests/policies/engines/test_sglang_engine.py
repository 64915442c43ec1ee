"""SGLang as an engine: its requests and responses, on a twin of its server."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentrl.check.extensions import engine as checks
from agentrl.config import RolloutConfig
from agentrl.errors import ConfigError, EngineError
from agentrl.files import is_alive
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.episode_prompts import Conversation
from agentrl.policies.engines import sglang_server
from agentrl.policies.engines.engine import EngineSettings, Sampling
from agentrl.policies.engines.sglang_engine import SGLangEngine
from agentrl.policies.engines.sglang_server import SGLangClient, SGLangServer
from agentrl.policies.models.families.qwen_vl import QwenVL
from agentrl.policies.open_engine import check_packages
from agentrl.types import Image, Prompt
from tests.policies.engines.sglang_twin import Twin, serving
from tests.policies.pictures import screen

pytestmark = [pytest.mark.filterwarnings("default")]
Server = tuple[str, Twin]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    "check",
    [checks.check_arguments, checks.check_abilities, checks.check_replies, checks.check_weights,
     checks.check_close],
)  # fmt: skip
def test_it_passes_the_checks_of_engines(server: Server, check) -> None:
    check(SGLangEngine, {"url": server[0]})


class Unmarked(QwenVL):
    """Leaves it to the engine to mark where images begin and end."""

    def engine_prompt(self, token_ids: Sequence[int], images: Sequence[Image]) -> list[int]:
        marks = (self.vision_start_id, self.vision_end_id)
        return [id for id in super().engine_prompt(token_ids, images) if id not in marks]


async def test_the_adapter_says_what_the_server_expands(server: Server, tiny_vlm: Path) -> None:
    url, twin = server
    adapter = f"{__name__}:Unmarked"
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm, adapter=adapter), url=url)
    await engine.start()
    encoder = ChatEncoder(tiny_vlm, adapter=adapter)
    model_adapter = encoder.model_adapter
    assert isinstance(model_adapter, Unmarked)
    twin.margins = ([model_adapter.vision_start_id], [model_adapter.vision_end_id])
    prompt = Conversation(encoder, "play").observe(screen(1))
    reply = await engine.generate(prompt, Sampling(max_new_tokens=2))
    assert len(reply.token_ids) == 2
    await engine.close()


async def test_a_tiny_top_p_leaves_the_most_probable_token(server: Server, tiny_vlm: Path) -> None:
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm), url=server[0])
    await engine.start()
    prompt = Prompt(token_ids=engine._encoder.opening())
    try:
        replies = [
            await engine.generate(
                prompt, Sampling(max_new_tokens=6, seed=seed, top_logprobs=3, **how)
            )
            for seed, how in enumerate([{"temperature": 0.0}, {"top_p": 1e-6}, {"top_p": 1e-6}])
        ]
    finally:
        await engine.close()
    assert len({reply.token_ids for reply in replies}) == 1
    for reply in replies[:1]:  # at temperature 0
        assert tuple(top[0] for top in reply.top_logprobs) == tuple(
            zip(reply.token_ids, reply.logprobs, strict=True)
        )
        assert {len(top) for top in reply.top_logprobs} == {3}


async def test_weights_travel_under_their_names_on_the_hub(
    server: Server, tiny_vlm: Path, tmp_path: Path
) -> None:
    url, twin = server
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm, version=3), url=url)
    await engine.start()
    # The server may have had the weights of another job.
    assert twin.version == "3"
    assert {"visual.patch_embed.proj.weight", "model.embed_tokens.weight"} <= twin.names
    assert not any("language_model" in name for name in twin.names)
    other = tiny_model.build(tmp_path / "other", 1)
    await engine.load_weights(other / "model.safetensors", 4)
    prompt = Prompt(token_ids=ChatEncoder(tiny_vlm).opening())
    assert (await engine.generate(prompt, Sampling(max_new_tokens=2))).version == 4
    assert not Path(twin.asked[-2]["model_path"]).exists()
    await engine.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((400, {"error": {"message": "too long"}}), "returned status 400.*too long"),
        ((200, b"<html>"), "invalid JSON"),
        ((200, b"[" * 100_000), "invalid JSON"),
        ((200, b" " * (65 << 20)), "exceeds 67108864 bytes"),
        (
            (200, {"output_ids": [1], "meta_info": {}}),
            "no field 'prompt_token_ids'.*0.5.9 or newer",
        ),
        (
            (
                200,
                {
                    "prompt_token_ids": [1, 2],
                    "output_ids": [1],
                    "meta_info": {
                        "output_token_logprobs": [[-1.0, 1, None]],
                        "weight_version": "0",
                    },
                },
            ),
            "expanded the prompt to 2 tokens, which differ",
        ),
    ],
)
async def test_a_wrong_answer_is_an_engine_error(
    server: Server, tiny_vlm: Path, answer, words: str
) -> None:
    url, twin = server
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm), url=url)
    await engine.start()
    twin.failure = answer
    prompt = Prompt(token_ids=ChatEncoder(tiny_vlm).opening())
    with pytest.raises(EngineError, match=words):
        await engine.generate(prompt, Sampling(max_new_tokens=2))
    await engine.close()


async def test_after_a_failed_update_it_answers_only_with_new_weights(
    server: Server, tiny_vlm: Path
) -> None:
    url, twin = server
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm), url=url)
    await engine.start()
    prompt = Prompt(token_ids=ChatEncoder(tiny_vlm).opening())
    twin.failure = (400, {"success": False, "message": "cannot load"})
    with pytest.raises(EngineError, match="cannot load"):
        await engine.load_weights(tiny_vlm / "model.safetensors", 5)
    with pytest.raises(EngineError, match=r"version 5 .*were not loaded"):
        await engine.generate(prompt, Sampling(max_new_tokens=1))
    await engine.load_weights(tiny_vlm / "model.safetensors", 6)
    assert (await engine.generate(prompt, Sampling(max_new_tokens=1))).version == 6
    await engine.close()


@pytest.mark.parametrize(
    ("kwargs", "more", "words"),
    [
        ({"url": "localhost:30000"}, {}, "must be http://HOST:PORT"),
        ({"url": "http://h:1", "tp_size": 2}, {}, "engine_kwargs.tp_size cannot be set.*remove it"),
        ({"url": "http://h:1"}, {"actors": 2}, "cannot share one SGLang server"),
    ],
)
def test_contradictory_settings_are_mistakes(kwargs, more, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SGLangEngine.check(RolloutConfig(engine="sglang", engine_kwargs=kwargs, **more))


def test_an_argument_that_the_server_does_not_have_is_found_in_its_source(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "sglang" / "srt").mkdir(parents=True)
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "srt" / "server_args.py").write_text(
        "@dataclasses.dataclass\n"
        "class ServerArgs:\n"
        "    mem_fraction_static: A[float, 'Share of memory.'] = 0.9\n"
        "    tp_size: A[int, Arg(help='Ranks.', aliases=['--tensor-parallel-size'])] = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    known = {"mem_fraction_static": 0.3, "tensor_parallel_size": 2}
    SGLangEngine.check(RolloutConfig(engine="sglang", engine_kwargs=known))
    SGLangEngine.check(RolloutConfig(engine="sglang", engine_kwargs={"url": "http://h:1"}))
    with pytest.raises(ConfigError, match=r"mem_fraction_statik: .*did you mean 'mem_fraction_st"):
        SGLangEngine.check(
            RolloutConfig(engine="sglang", engine_kwargs={"mem_fraction_statik": 0.3})
        )


def test_only_a_server_that_is_started_here_needs_sglang_here(monkeypatch) -> None:
    from agentrl import extras

    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda n: None if n == "sglang" else found(n))
    check_packages(RolloutConfig(engine="sglang", engine_kwargs={"url": "http://h:1"}))
    with pytest.raises(ConfigError, match="needs SGLang, which is not installed; run: pip"):
        check_packages(RolloutConfig(engine="sglang"))


async def test_an_address_without_a_server_is_a_mistake(tiny_vlm: Path) -> None:
    engine = SGLangEngine(EngineSettings(folder=tiny_vlm), url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no SGLang server answers at this address"):
        await engine.start()
    await engine.close()


async def test_a_silent_address_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_server, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = SGLangClient(f"http://127.0.0.1:{silent.getsockname()[1]}", 1)
        assert not await client.is_healthy()
        await client.close()


STAND_IN = '''
"""Takes SGLang's place in sys.path: what is tested is the process around it."""
import argparse, http.server, sys

parser = argparse.ArgumentParser()
for name in ("--model-path", "--host", "--dtype"):
    parser.add_argument(name)
parser.add_argument("--port", type=int)
parser.add_argument("--fail", action="store_true")
given = parser.parse_args()
if given.fail:
    raise ValueError("no kernel for this device")


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


http.server.HTTPServer((given.host, given.port), Healthy).serve_forever()
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"no_such": 1},
            ConfigError,
            "rejects rollout.engine_kwargs: .*arguments: --no-such",
        ),
        ({"fail": True}, EngineError, "exited with status 1: .*no kernel for this device"),
    ],
)
async def test_a_server_that_does_not_start_says_why(stand_in, arguments, error, words) -> None:
    server = SGLangServer(Path("model"), arguments)
    client = SGLangClient(server.url, 1)
    with pytest.raises(error, match=words):
        await server.wait(client, 60)
    await client.close()
    server.close()
    server.close()


def test_a_server_ends_with_a_killed_parent(stand_in) -> None:
    code = """
        import asyncio, os
        from pathlib import Path
        from agentrl.policies.engines.sglang_server import SGLangClient, SGLangServer

        async def main():
            server = SGLangServer(Path("model"), {"dtype": "float32"})
            await server.wait(SGLangClient(server.url, 1), 60)
            print(server._process.pid, flush=True)
            os.kill(os.getpid(), 9)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100
    )
    pid = int(done.stdout)
    end = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < end, "the server outlived its parent"
        time.sleep(0.05)

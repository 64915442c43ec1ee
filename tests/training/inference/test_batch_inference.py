"""`agentrl infer`: judged by transformers, by readers of data sets, and by SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import agentrl
from agentrl import cli
from agentrl.errors import ConfigError, EndpointRefused
from agentrl.policies.engines import remote_engine
from agentrl.training.inference.batch_inference import PromptSource, journal_of
from tests.data.rows import jpeg, png, write_jsonl
from tests.data.test_contracts import EASYR1, LMM_R1_MESSAGE, R1V, TRL_BESIDE, VERL
from tests.data.test_offline_rows import SHARE_GPT
from tests.policies.completions_server import ok, refusal, reply, serving

HERE = ["rollout.engine=hf", "rollout.launcher=local", "rollout.max_new_tokens=8"]
SUMS = [{"question": f"What is {k} + {k}?", "id": f"sum {k}"} for k in range(6)]


def infer(model, data, out, *more, **options):
    return agentrl.infer(str(model), data, out, overrides=[*HERE, *more], **options)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows(tmp_path):
    return write_jsonl(tmp_path / "rows.jsonl", SUMS)


def test_greedy_responses_are_those_of_transformers(tiny_vlm, tmp_path):
    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    (tmp_path / "a.jpg").write_bytes(jpeg(side=84))
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "<image>What is this?"},
        {"role": "assistant", "content": "A box"},
        {"role": "user", "content": "Which color?"},
    ]
    plain = [{"role": "user", "content": "What is 2 + 2?"}]
    data = write_jsonl(
        tmp_path / "rows.jsonl", [{"messages": chat, "images": ["a.jpg"]}, {"messages": plain}]
    )
    found = infer(tiny_vlm, str(data), tmp_path / "out.jsonl", greedy=True)
    assert (found.rows, found.failed) == (2, 0)

    processor = AutoProcessor.from_pretrained(tiny_vlm)
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    image = {"type": "image", "image": Image.open(tmp_path / "a.jpg")}
    chat[1]["content"] = [image, {"type": "text", "text": "What is this?"}]
    for row, messages in zip(read(tmp_path / "out.jsonl"), (chat, plain), strict=True):
        for message in messages:
            if isinstance(message["content"], str):
                message["content"] = [{"type": "text", "text": message["content"]}]
        inputs = processor.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True,
            return_tensors="pt",
        )  # fmt: skip
        marks = [model.config.image_token_id, model.config.video_token_id]
        with torch.inference_mode():
            ids = model.generate(
                **inputs, do_sample=False, max_new_tokens=8, suppress_tokens=marks
            )[0, inputs["input_ids"].shape[1] :]
        assert row["prompt_tokens"] == inputs["input_ids"].shape[1]
        assert row["responses"] == [processor.decode(ids, skip_special_tokens=True)]
        assert row["response_tokens"] == [len(ids)]
        assert row["finish_reasons"] == ["length"]
    # A further end token, also in transformers.
    last = int(ids[3])
    stop = str(
        processor.tokenizer.convert_tokens_to_string(
            [processor.tokenizer.convert_ids_to_tokens(last)]
        )
    )
    infer(
        tiny_vlm,
        str(data),
        tmp_path / "stopped.jsonl",
        f"rollout.stop={json.dumps([stop])}",
        greedy=True,
    )
    with torch.inference_mode():
        ended = model.generate(
            **inputs, do_sample=False, max_new_tokens=8, suppress_tokens=marks, eos_token_id=last
        )[0, inputs["input_ids"].shape[1] :]
    row = read(tmp_path / "stopped.jsonl")[1]
    assert row["responses"] == [processor.decode(ended, skip_special_tokens=True)]
    assert (row["response_tokens"], row["finish_reasons"]) == ([len(ended)], ["stop"])


def test_rows_of_all_formats_are_answered_and_bad_ones_say_why(tiny_vlm, tmp_path):
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "a.png").write_bytes(png())
    message = json.dumps(LMM_R1_MESSAGE).replace("{folder}", str(tmp_path))
    trl = {**TRL_BESIDE, "images": ["a.png"]}
    texts = [
        EASYR1,
        {**EASYR1, "images": ["missing.png", "a.png"]},
        {**EASYR1, "problem": "long " * 400},
    ]
    for name, table in {
        "texts": [{k: v for k, v in row.items() if k != "answer"} for row in texts],
        "r1v": [R1V], "trl": [trl], "lmm-r1": [{"message": message}],
    }.items():  # fmt: skip
        out = tmp_path / f"{name}-out.jsonl"
        data = write_jsonl(tmp_path / f"{name}.jsonl", table)
        found = infer(tiny_vlm, str(data), out, "rollout.max_context=300")
        answered = read(out)
        assert [row["row"] for row in answered] == list(range(len(table)))
        assert found.failed == sum(row["error"] is not None for row in answered)
        for row, given in zip(answered, table, strict=True):
            assert given.items() <= row.items()
        if name == "texts":
            assert answered[0]["error"] is None
            assert "missing.png" in answered[1]["error"]
            assert "exceed rollout.max_context=300" in answered[2]["error"]
            assert answered[1]["responses"] == answered[2]["responses"] == []
        else:
            assert found.failed == 0
    parquet.write_table(pyarrow.Table.from_pylist([VERL]), tmp_path / "verl.parquet")
    found = infer(tiny_vlm, str(tmp_path / "verl.parquet"), tmp_path / "out.jsonl", n=2)
    (row,) = read(tmp_path / "out.jsonl")
    assert row["extra_info"] == VERL["extra_info"]
    assert len(row["responses"]) == 2
    again = infer(  # the picture, now in base64, is read again
        tiny_vlm,
        str(
            write_jsonl(
                tmp_path / "again.jsonl", [{"prompt": row["prompt"], "images": row["images"]}]
            )
        ),
        tmp_path / "again-out.jsonl",
    )
    assert again.failed == 0


def test_parquet_keeps_columns_and_images_for_other_readers(tiny_vlm, tmp_path):
    import datasets
    from pyarrow import parquet

    data = write_jsonl(tmp_path / "rows.jsonl", [{**SUMS[0], "level": 1}, {**SUMS[1], "why": "?"}])
    infer(tiny_vlm, str(data), tmp_path / "out.parquet", n=2)
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["id"], row["level"], row["why"]) for row in table] == [
        ("sum 0", 1, None),
        ("sum 1", None, "?"),
    ]
    assert [len(row["responses"]) for row in table] == [2, 2]
    loaded = datasets.Dataset.from_parquet(
        str(tmp_path / "out.parquet"), cache_dir=str(tmp_path / "cache")
    )
    assert loaded["responses"][1] == table[1]["responses"]
    mixed = write_jsonl(
        tmp_path / "mixed.jsonl", [{**SUMS[0], "level": 1}, {**SUMS[1], "level": []}]
    )
    with pytest.raises(ConfigError, match=r"do not fit into a Parquet file.*\.jsonl"):
        infer(tiny_vlm, str(mixed), tmp_path / "mixed.parquet")


def test_samples_differ_and_a_template_key_and_system_message_reach_the_model(tiny_vlm, tmp_path):
    data = write_jsonl(tmp_path / "rows.jsonl", [{"asked": "2 + 2", "level": "easy"}] * 2)
    source = PromptSource(
        data=str(data), keys={"problem": "asked"}, template="{{ level }}: {{ problem }}",
        system="Count.",
    )  # fmt: skip
    infer(tiny_vlm, source, tmp_path / "out.jsonl", n=8)
    first, second = read(tmp_path / "out.jsonl")
    assert len({*first["responses"], *second["responses"]}) == 16
    spelled = [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "easy: 2 + 2"},
    ]
    same = write_jsonl(tmp_path / "same.jsonl", [{"messages": spelled}] * 2)
    infer(tiny_vlm, str(same), tmp_path / "same-out.jsonl", n=8)
    assert [row["responses"] for row in read(tmp_path / "same-out.jsonl")] == [
        first["responses"],
        second["responses"],
    ]
    with pytest.raises(ConfigError, match="with greedy decoding, which always gives one reply"):
        infer(tiny_vlm, source, tmp_path / "out2.jsonl", n=2, greedy=True)


def test_a_reference_answer_at_the_end_is_not_shown_to_the_model(tiny_vlm, tmp_path):
    whole = {"conversations": SHARE_GPT["conversations"], "image": SHARE_GPT["image"]}
    (tmp_path / SHARE_GPT["image"]).write_bytes(png())
    asked = {**whole, "conversations": whole["conversations"][:-1]}
    data = write_jsonl(tmp_path / "rows.jsonl", [whole, asked])
    infer(tiny_vlm, str(data), tmp_path / "out.jsonl", greedy=True)
    one, other = read(tmp_path / "out.jsonl")
    assert (one["prompt_tokens"], one["responses"]) == (other["prompt_tokens"], other["responses"])


def stopped_after(count, monkeypatch, model, data, out):
    """Run a job until some rows are recorded, as if the process then ended."""
    from agentrl.training.inference.row_journal import RowJournal

    add = RowJournal.add

    def limited(journal, row, result):
        if len(journal) == count:
            raise OSError("the disk is full")
        add(journal, row, result)

    with monkeypatch.context() as patch:
        patch.setattr(RowJournal, "add", limited)
        with pytest.raises(OSError, match="disk"):
            infer(model, str(data), out)


def test_a_job_continues_with_the_same_settings_and_data(tiny_vlm, rows, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    stopped_after(2, monkeypatch, tiny_vlm, rows, out)
    assert not out.exists()
    recorded = journal_of(out).read_bytes()
    with journal_of(out).open("ab") as journal:
        journal.write(b'{"row": 5, "respon')  # the process was killed while it wrote
    for options, more, says in [
        ({"n": 2}, [], r"differs in n \(1 then, 2 now\)"),
        ({}, ["rollout.temperature=0.5"], r"rollout.temperature \(1.0 then, 0.5 now\)"),
        ({}, ["model.max_pixels=10000"], r"model.max_pixels"),
    ]:
        with pytest.raises(ConfigError, match=says):
            infer(tiny_vlm, str(rows), out, *more, **options)
    text = rows.read_text()
    rows.write_text(text.replace("2 + 2", "3 + 3"))
    with pytest.raises(ConfigError, match="differs in the rows of the data"):
        infer(tiny_vlm, str(rows), out)
    rows.write_text(text)
    found = infer(tiny_vlm, str(rows), out)
    lines = [json.loads(line) for line in recorded.splitlines()[1:]]
    assert (found.rows, found.recorded) == (6, len(lines))
    assert len(lines) == 2
    answered = read(out)
    assert [row["id"] for row in answered] == [row["id"] for row in SUMS]
    assert all(answered[line["row"]]["responses"] == line["responses"] for line in lines)
    assert not journal_of(out).exists()
    with pytest.raises(ConfigError, match="already exists"):
        infer(tiny_vlm, str(rows), out)


def test_mistakes_are_refused_before_anything_is_written(tiny_vlm, rows, tmp_path):
    for name, options, says in [
        ("out.csv", {}, r"must end in \.jsonl or \.parquet"),
        ("no/out.jsonl", {}, "is not a folder"),
        ("out.jsonl", {"n": 0}, "n=0"),
    ]:
        with pytest.raises(ConfigError, match=says):
            infer(tiny_vlm, str(rows), tmp_path / name, **options)
    taken = write_jsonl(tmp_path / "taken.jsonl", [{**SUMS[0], "responses": []}])
    with pytest.raises(ConfigError, match="has a column 'responses'"):
        infer(tiny_vlm, str(taken), tmp_path / "out.jsonl")
    for keys, says in [({"answer": "id"}, "keys.answer"), ({"problem": "quest"}, "no such column")]:
        with pytest.raises(ConfigError, match=says):
            infer(tiny_vlm, PromptSource(data=str(rows), keys=keys), tmp_path / "out.jsonl")
    other = write_jsonl(tmp_path / "other.jsonl", [{"title": "?"}])
    with pytest.raises(ConfigError, match="name the column with the question"):
        infer(tiny_vlm, str(other), tmp_path / "out.jsonl")
    with pytest.raises(ConfigError, match="no such folder"):
        infer(tmp_path / "no" / "model", str(rows), tmp_path / "out.jsonl")
    assert {path.name for path in tmp_path.iterdir()} == {
        "rows.jsonl",
        "taken.jsonl",
        "other.jsonl",
    }


def test_a_server_answers_and_one_that_fails_loses_no_row(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(remote_engine, "_BACKOFF_S", 0.01)
    broken = True

    def answer(body):
        asked = body["messages"][-1]["content"]
        if "3 + 3" in asked:
            return refusal(400, "this question is not allowed")
        if broken and "5 + 5" in asked:
            return refusal(500, "out of memory")
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return ok(reply(f"the answer to {asked}", "length") | {"usage": usage})

    with serving() as server:
        server.usual = answer
        command = ["infer", server.url, str(rows), "--out", str(tmp_path / "out.jsonl")]
        command += ["--system", "Be brief.", "rollout.concurrency=1"]
        assert cli.run(command) == 1
        assert "run the same command to continue" in capsys.readouterr().err
        broken = False
        assert cli.run(command) == 0
    out, err = capsys.readouterr()
    assert "6 of 6 rows, " in err.splitlines()[-1]
    assert "6 rows, 5 of them earlier; 15 tokens" in out
    assert server.asked[-1]["messages"][0] == {"role": "system", "content": "Be brief."}
    answered = read(tmp_path / "out.jsonl")
    assert "not allowed" in answered[3].pop("error")
    assert [row.get("error") for row in answered] == [None] * 6
    assert answered[5]["responses"] == ["the answer to What is 5 + 5?"]
    assert (answered[5]["finish_reasons"], answered[5]["response_tokens"]) == (["length"], [3])
    with serving() as server:
        hello = ok(reply("hi"))
        server.usual = lambda body: hello if body["max_tokens"] == 1 else refusal(422, "no")
        with pytest.raises(EndpointRefused):
            agentrl.infer(server.url, str(write_jsonl(rows, SUMS * 2)), tmp_path / "none.jsonl")
    assert len(journal_of(tmp_path / "none.jsonl").read_bytes().splitlines()) == 1


def lines_of(journal):
    with suppress(FileNotFoundError):
        return journal.read_bytes().splitlines(keepends=True)[1:]
    return []


def test_a_job_without_any_answer_fails_with_the_reason(tmp_path, capsys):
    asked = [{"question": f"What is {k}?", "image": f"gone-{k}.png"} for k in range(3)]
    data, out = write_jsonl(tmp_path / "rows.jsonl", asked), tmp_path / "out.jsonl"
    assert cli.run(["infer", "tiny", str(data), "--out", str(out), *HERE]) == 1
    said = capsys.readouterr()
    assert "no row has a response: " in said.err
    assert "gone-0.png" in said.err
    assert len(read(out)) == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path):
    asked = [{"question": f"What is {k} + 1?", "id": k} for k in range(300)]
    data, out = write_jsonl(tmp_path / "rows.jsonl", asked), tmp_path / "out.jsonl"
    command = [
        sys.executable,
        "-m",
        "agentrl",
        "infer",
        "tiny",
        str(data),
        "--out",
        str(out),
        *HERE,
    ]
    recorded: dict[int, list[str]] = {}
    for stop in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        before = len(lines_of(journal_of(out)))
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 100
        while len(lines_of(journal_of(out))) < before + 40:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(process.pid, stop)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == {signal.SIGINT: 130}.get(stop, -stop)
        assert ("run the same command to continue" in said) == (stop != signal.SIGKILL)
        for line in lines_of(journal_of(out)):
            if line.endswith(b"\n"):
                row = json.loads(line)
                known = recorded.setdefault(row["row"], row["responses"])
                assert known == row["responses"]
    found = subprocess.run(
        [*command, "--json"], stdout=subprocess.PIPE, text=True, timeout=100, check=True
    )
    printed = json.loads(found.stdout)
    assert len(recorded) >= 3 * 40
    assert (printed["rows"], printed["recorded"], printed["failed"]) == (300, len(recorded), 0)
    answered = read(out)
    assert [row["row"] for row in answered] == [row["id"] for row in answered] == [*range(300)]
    assert all(answered[row]["responses"] == responses for row, responses in recorded.items())
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out.jsonl"}


def engines_of(process):
    """The processes of the rollout actors among the descendants of a process."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], stdout=subprocess.PIPE, text=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
    found, names = {process.pid}, {int(pid): args for pid, _, args in rows}
    for _ in range(6):
        found |= {int(pid) for pid, parent, _ in rows if int(parent) in found}
    return [pid for pid in found if "RolloutActor" in names.get(pid, "")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_engines_in_actors_share_the_rows_and_one_that_is_killed_is_replaced(tmp_path):
    asked = [{"question": f"What is {k} + 1?"} for k in range(1500)]
    data, out = write_jsonl(tmp_path / "rows.jsonl", asked), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "agentrl", "infer", "tiny", str(data), "--out", str(out)]
    command += ["--greedy", "rollout.engine=hf", "rollout.max_new_tokens=12", "rollout.actors=2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 150
    while len(lines_of(journal_of(out))) < 100:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)
    engines = engines_of(process)
    assert len(engines) == 2
    os.kill(engines[0], signal.SIGKILL)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 0, said
    assert "rollout worker" in said
    assert "lost" in said
    answered = read(out)
    assert [len(row["responses"]) for row in answered] == [1] * 1500
    alone = write_jsonl(tmp_path / "few.jsonl", asked[::150])
    agentrl.infer("tiny", str(alone), tmp_path / "few-out.jsonl", greedy=True, overrides=[
        "rollout.engine=hf", "rollout.launcher=local", "rollout.max_new_tokens=12",
    ])  # fmt: skip
    same = [row["responses"] for row in read(tmp_path / "few-out.jsonl")]
    assert same == [row["responses"] for row in answered[::150]]

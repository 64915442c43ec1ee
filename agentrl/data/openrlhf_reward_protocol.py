"""OpenRLHF's protocol for reward servers (`--remote_rm_url`), for client and server.

::

    POST {"query": [...], "prompts": [...], "labels": [...]}
    ->   {"rewards": [...], "scores": [...], "extra_logs": {name: [...]}}

A query is the text of a whole conversation, prompt and response, with the chat template's special
tokens. In the answer, only `rewards` is required.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.data.reward_inputs import CHATML

# Matches the text that begins an answer in common chat templates.
_ANSWER_BEGINS = re.compile(
    r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n"
    r"|<start_of_turn>model\n|<｜Assistant｜>|\[/INST\]"  # noqa: RUF001
)
_SPECIAL = re.compile(
    r"<\|[\w ]+\|>|<｜[^<>]+｜>|<end_of_turn>|</s>|<eos>|<pad>"  # noqa: RUF001
)


def request_of(
    inputs: Sequence[Mapping[str, Any]], prompt_key: str | None = None
) -> dict[str, list[Any]]:
    """Build the request that OpenRLHF would send for some episodes.

    Args:
        inputs: see `agentrl.rollout.rewards.reward_calls.inputs_of`.
        prompt_key: column of the row to send as `prompts`; None sends the prompt's text.
    """
    texts = [_texts_of(one) for one in inputs]
    return {
        "query": [text for _, text in texts],
        "prompts": [
            prompt if prompt_key is None else one[prompt_key]
            for (prompt, _), one in zip(texts, inputs, strict=True)
        ],
        "labels": [one["ground_truth"] for one in inputs],
    }


def _texts_of(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """Return the prompt's text and the text of prompt and response, in ChatML if not given."""
    if "chat_text" in inputs and "chat_prompt" in inputs:
        return inputs["chat_prompt"], inputs["chat_text"]
    system = inputs.get("instructions")
    messages = [{"role": "system", "content": system}] if system else []
    prompt = CHATML.prompt([*messages, {"role": "user", "content": inputs["shown"]}])
    return prompt, f"{prompt}{inputs['response']}{CHATML.end}"


def inputs_of_request(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert a request from OpenRLHF to inputs of a batch function."""
    queries = content.get("query")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise ValueError('"query" must be a list of strings')
    columns: dict[str, list[Any]] = {}
    for name in ("prompts", "labels"):
        values = content.get(name)
        columns[name] = [None] * len(queries) if values is None else values
        if not isinstance(columns[name], list) or len(columns[name]) != len(queries):
            raise ValueError(f'"{name}" must be a list as long as "query" ({len(queries)})')
    inputs = []
    for query, prompt, label in zip(queries, columns["prompts"], columns["labels"], strict=True):
        response = response_in(query, prompt)
        text = prompt if isinstance(prompt, str) else ""
        inputs.append(
            {
                "response": response,
                "responses": [response],
                "response_length": len(response),
                "response_ids": [],
                "ground_truth": label,
                "images": [],
                "env_rewards": [0.0],
                "info": {},
                "data_source": "openrlhf",
                "shown": text,
                "prompt": prompt,
                "instructions": "",
                "chat_prompt": text,
                "chat_text": query,
            }
        )
    return inputs


def response_in(query: str, prompt: Any) -> str:
    """Extract the response from a query, without the special tokens that end it."""
    if isinstance(prompt, str) and prompt and query.startswith(prompt):
        text = query[len(prompt) :]
    else:
        # The query does not start with the prompt, because its image tokens are expanded or because
        # the prompt is raw text from a row.
        *_, text = _ANSWER_BEGINS.split(query)
    # Scan from the end, since a regular expression would start a search at every space in the text.
    end = kept = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        start = text.rfind("<", 0, end)
        if start < 0 or not _SPECIAL.fullmatch(text, start, end):
            return text[: end if kept < len(text) else kept]
        end = kept = start


def rows_of(answer: Any, count: int) -> list[dict[str, Any]]:
    """Convert a reward server's answer to rows with `overall`, `score` and the logs."""
    rewards = answer.get("rewards") if isinstance(answer, Mapping) else None
    if not isinstance(rewards, list) or len(rewards) != count:
        received = len(rewards) if isinstance(rewards, list) else "no list of"
        raise ValueError(f"{received} rewards for {count} episodes")
    logs = answer.get("extra_logs") or {}
    columns = {"score": answer.get("scores"), **(logs if isinstance(logs, Mapping) else {})}
    rows: list[dict[str, Any]] = [{"overall": reward} for reward in rewards]
    for name, values in columns.items():
        if values is None:
            continue
        spread = values if isinstance(values, list) else [values] * count
        for row, value in zip(rows, spread, strict=False):
            row[name] = value
    return rows


def answer_of(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Build the answer that OpenRLHF expects, with all components of the rows as logs."""
    names = dict.fromkeys(name for row in rows for name in row if name != "overall")
    rewards = [row["overall"] for row in rows]
    logs = {name: [row.get(name, 0.0) for row in rows] for name in names}
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}

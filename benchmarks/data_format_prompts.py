"""The messages that other trainers build from their rows, and the token ids of these messages.

Written after reading EasyR1's and veRL's `RLHFDataset`, R1-V's `grpo.py`, LMM-R1's and OpenRLHF's
data processors, and LLaMA-Factory's converters. TRL itself builds TRL's messages.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import PIL.Image

Row = Mapping[str, Any]
Messages = list[dict[str, Any]]


_ALONE = "{{ problem }}"


def token_ids(processor: Any, messages: Messages | str, folder: Path) -> list[int]:
    """Encode messages as a prompt with transformers' processor.

    Args:
        processor: the model's processor.
        messages: messages with image paths in their parts, or a text for the model to continue.
        folder: folder that contains the images.
    """
    if isinstance(messages, str):
        return list(processor.tokenizer(text=messages)["input_ids"])
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    parts = [p for m in messages if isinstance(m["content"], list) for p in m["content"]]
    images = [PIL.Image.open(folder / part["image"]) for part in parts if part["type"] == "image"]
    found = processor(text=[text], images=images or None, add_special_tokens=False)
    return [int(id) for id in found["input_ids"][0]]


def easyr1(row: Row, settings: Row) -> Messages:
    """EasyR1: the format prompt around the problem, cut at `<image>` if the row has images."""
    text = row["problem"]
    if "template" in settings:
        written = settings["template"]
        if written.endswith(".jinja"):
            written = Path(written).read_text("utf-8")
        text = jinja2.Template(written.strip()).render(content=text, problem=text)
    content = _cut(text, row["images"]) if "images" in row else text
    return [{"role": "user", "content": content}]


def r1v(row: Row, settings: Row) -> Messages:
    """R1-V: the image, then the question in a format string from its code."""
    text = settings["template"].replace("{{ problem }}", row["problem"])
    parts = [{"type": "image", "image": row["image"]}, {"type": "text", "text": text}]
    return [{"role": "user", "content": parts}]


def verl(row: Row, settings: Row) -> Messages:
    """VeRL: the messages, cut at `<image>` if the row has images."""
    images = iter([image["bytes"] for image in row.get("images", ())])
    return [
        {**message, "content": _cut(message["content"], images) if "images" in row
         else message["content"]}
        for message in row["prompt"]
    ]  # fmt: skip


def lmm_r1(row: Row, settings: Row) -> Messages:
    """LMM-R1: messages given as the text of a column."""
    messages: Messages = json.loads(row["message"])
    return messages


def openrlhf(row: Row, settings: Row) -> Messages:
    """OpenRLHF with `--apply_chat_template`: a text or messages, with images filled into parts."""
    asked = row.get("prompt", row.get("input"))
    images = iter(row.get("images", ()))
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    return [{**message, "content": _filled(message["content"], images)} for message in asked]


def trl(row: Row, settings: Row) -> Messages | str:
    """TRL: messages, with images first unless parts place them; or a bare text."""
    if isinstance(row["prompt"], str):
        return row["prompt"]
    from trl.data_utils import prepare_multimodal_messages

    images = list(row.get("images", ()))
    messages: Messages = prepare_multimodal_messages(row["prompt"], images=images)
    return messages


def llama_factory(row: Row, settings: Row) -> Messages:
    """LLaMA-Factory: the system column, then all turns before the last reply."""
    if "conversations" in row:
        texts = [turn["value"] for turn in row["conversations"][:-1]]
    else:
        earlier = [text for pair in row.get("history", ()) for text in pair]
        texts = [*earlier, "\n".join(filter(None, (row["instruction"], row["input"])))]
    images = iter(row.get("images", ()))
    said = [
        {"role": ("user", "assistant")[number % 2], "content": _cut(text, images)}
        for number, text in enumerate(texts)
    ]
    return [{"role": "system", "content": row["system"]}, *said]


def mmmu(row: Row, settings: Row) -> Messages:
    """MMMU: question, lettered options, and a request for the letter; images where mentioned."""
    options = "".join(
        f"({letter}) {text}\n"
        for letter, text in zip("ABC", ast.literal_eval(row["options"]), strict=True)
    )
    ask = "Answer with the option's letter from the given choices directly."
    text = f"{row['question']}\n{options}\n{ask}"
    images = [row[f"image_{number}"] for number in re.findall(r"<image (\d)>", text)]
    return [{"role": "user", "content": _cut(re.sub(r"<image \d>", "<image>", text), images)}]


def mathvista(row: Row, settings: Row) -> Messages:
    """MathVista: the image, and the query from its file."""
    return r1v({"image": row["decoded_image"], "problem": row["query"]}, {"template": _ALONE})


def r1v_test(row: Row, settings: Row) -> Messages:
    """R1-V's tests: as in training, from a file with different columns."""
    return r1v({"image": row["image_path"], "problem": row["question"]}, settings)


def _cut(text: str, images: Any) -> list[dict[str, Any]]:
    """Split a text into parts, with an image in place of each `<image>`."""
    left = iter(images)
    first, *rest = text.split("<image>")
    parts = [{"type": "text", "text": first}] if first else []
    for piece in rest:
        parts.append({"type": "image", "image": next(left)})
        parts += [{"type": "text", "text": piece}] if piece else []
    return parts


def _filled(parts: Sequence[Mapping[str, Any]] | str, images: Any) -> Any:
    if isinstance(parts, str):
        return parts
    return [{**p, "image": next(images)} if p["type"] == "image" else dict(p) for p in parts]

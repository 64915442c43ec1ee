"""Write rows with drawn figures for configs/recipes, to try a recipe without its data set.

Run: python examples/draw_rows.py easyr1 rows.jsonl [NUMBER]
"""

import json
import sys
from pathlib import Path

import cv2

from agentrl.envs.qa.arithmetic import Arithmetic
from agentrl.envs.qa.counting import Counting
from agentrl.envs.qa.geometry import Geometry


def easyr1(figure, sum_, files):
    return {"problem": f"<image>{figure.problem}", "images": files[:1], "answer": figure.answer}


def multi_image(figure, sum_, files):
    return {
        "problem": f"<image><image>Of the first picture: {figure.problem}",
        "images": files,
        "answer": figure.answer,
    }


def math(figure, sum_, files):
    return {"problem": sum_.problem, "answer": sum_.answer}


def digits(figure, sum_, files):
    return {
        "problem": "<image>Which card?",
        "images": files[:1],
        "answer": str(len(sum_.answer) % 3),
    }


def r1v(figure, sum_, files):
    solution = f"<answer> {figure.answer} </answer>"
    return {"image": files[0], "problem": figure.problem, "solution": solution}


def gsm8k(figure, sum_, files):
    return {"question": sum_.problem, "answer": f"One step at a time.\n#### {sum_.answer}"}


def lmm_r1(figure, sum_, files):
    asked = [
        {"role": "system", "content": "Solve the question, then answer in a box."},
        {
            "role": "user",
            "content": [
                {"type": "image", "image": files[0]},
                {"type": "text", "text": figure.problem},
            ],
        },
    ]
    answer = f"$\\boxed{{{figure.answer}}}$"
    return {"question": figure.problem, "answer": answer, "message": json.dumps(asked)}


def pairs(figure, sum_, files):
    asked = {"role": "user", "content": sum_.problem}
    replies = {"chosen": sum_.answer, "rejected": "no idea"}
    return {
        name: [asked, {"role": "assistant", "content": reply}] for name, reply in replies.items()
    }


FORMATS = {
    one.__name__: one for one in (easyr1, multi_image, math, digits, r1v, gsm8k, lmm_r1, pairs)
}


def draw(kind, path, count=8):
    """Write rows to a file, and their pictures next to it."""
    figures, shapes, sums = Geometry(pixels=168), Counting(pixels=168), Arithmetic()
    rows = []
    for seed in range(count):
        figure, other, sum_ = (source.question(seed) for source in (figures, shapes, sums))
        files = [f"{path.stem}_{seed}_{number}.png" for number in (0, 1)]
        for file, image in zip(files, (*figure.images, *other.images), strict=True):
            cv2.imwrite(str(path.parent / file), image[..., ::-1])
        figure = type(figure)(
            name=figure.name,
            accepted=figure.accepted,
            problem=figure.problem.replace("<image>", ""),
        )
        rows.append(FORMATS[kind](figure, sum_, files))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in FORMATS:
        sys.exit(f"usage: draw_rows.py {'|'.join(FORMATS)} FILE.jsonl [NUMBER]")
    draw(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))

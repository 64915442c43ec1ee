"""Data sets on disk for tests."""

import csv
import json

import cv2
import numpy as np

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\nshowpage\n"


def picture(value=100, height=6, width=8):
    image = np.full((height, width, 3), value, np.uint8)
    image[0, 0] = (255, 0, 0)
    return image


def png(image=None):
    image = picture() if image is None else image
    return cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()


def jpeg(value=100, side=64):
    rng = np.random.default_rng(value)
    return cv2.imencode(".jpg", rng.integers(0, 256, (side, side, 3), np.uint8))[1].tobytes()


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def sums(count):
    return [{"problem": f"What is {n} + 1?", "answer": n + 1} for n in range(count)]

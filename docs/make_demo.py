"""Draw the README's animation (python docs/make_demo.py RUN): two games and the learning curve.

RUN is a finished run of configs/number_game.yaml. The same seed is shown as played by the model
before and after reinforcement learning; the learning curve rises beside it.
"""

import io
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from PIL import Image, ImageDraw, ImageFont, ImageSequence

from agentrl import replay
from agentrl.viewer.export import episode_media

IMAGE = Path(__file__).parent / "images" / "demo.webp"
CURVE_INCHES = (4.6, 3.4)
PHONE_HEIGHT = 460
HEADER = 34
FRAME_MS, LAST_FRAME_MS = 550, 3000


def main(folder: str) -> None:
    """Write docs/images/demo.webp."""
    run = replay.open(folder)
    before, after = episodes_of_one_seed(run)
    games = [frames(episode_media.gif(run, run.episode(e.id))) for e in (before, after)]
    steps, accuracy = curve(Path(folder))
    count = max(map(len, games))
    images = []
    for number in range(count):
        shown = max(2, round(len(steps) * (number + 1) / count))
        plot = drawn_curve(steps, accuracy, shown)
        phones = [game[min(number, len(game) - 1)] for game in games]
        images.append(side_by_side(phones, plot))
    durations = [FRAME_MS] * (count - 1) + [LAST_FRAME_MS]
    images[0].save(
        IMAGE, save_all=True, append_images=images[1:], duration=durations, loop=0, quality=70
    )
    print(f"{IMAGE}: {IMAGE.stat().st_size / 1000:.0f} kB, {count} frames")


def episodes_of_one_seed(run: replay.Run) -> tuple[replay.Summary, replay.Summary]:
    """The greedy games of one seed that differ most in reward."""
    found: dict[str, dict[int, replay.Summary]] = {"before-greedy": {}, "after-greedy": {}}
    for episode in run.episodes(replay.Filter(split="eval")):
        if episode.label in found:
            found[episode.label][episode.seed] = episode
    before, after = found.values()
    seed = max(before.keys() & after.keys(), key=lambda s: after[s].reward - before[s].reward)
    return before[seed], after[seed]


def frames(gif: bytes) -> list[Image.Image]:
    """The frames of an exported animation, scaled to one height."""
    with Image.open(io.BytesIO(gif)) as animation:
        images = [frame.convert("RGB") for frame in ImageSequence.Iterator(animation)]
    width = round(images[0].width * PHONE_HEIGHT / images[0].height)
    return [image.resize((width, PHONE_HEIGHT), Image.Resampling.LANCZOS) for image in images]


def curve(folder: Path) -> tuple[list[int], list[float]]:
    """Training steps, and the accuracy of the games played in each."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = {row["step"]: row["train/accuracy"] for row in rows if "train/accuracy" in row}
    return list(found), list(found.values())


def drawn_curve(steps: list[int], accuracy: list[float], shown: int) -> Image.Image:
    """The learning curve up to some step."""
    figure, axes = pyplot.subplots(figsize=CURVE_INCHES, dpi=100)
    axes.plot(steps[:shown], accuracy[:shown], color="#2563eb", linewidth=2.5)
    axes.set(xlim=(min(steps), max(steps)), ylim=(0.4, 1.02), xlabel="training step")
    axes.set_title("accuracy of training games", fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    held = io.BytesIO()
    figure.savefig(held)
    pyplot.close(figure)
    return Image.open(held).convert("RGB")


def side_by_side(phones: list[Image.Image], plot: Image.Image) -> Image.Image:
    """Two phones with a heading each, and the curve."""
    gap = 16
    width = sum(p.width for p in phones) + plot.width + 4 * gap
    canvas = Image.new("RGB", (width, HEADER + PHONE_HEIGHT + gap), "white")
    draw, font, x = ImageDraw.Draw(canvas), ImageFont.load_default(17), gap
    for phone, heading in zip(phones, ("before RL", "after RL"), strict=True):
        draw.text(
            (x + phone.width / 2, HEADER / 2), heading, fill="#15181d", font=font, anchor="mm"
        )
        canvas.paste(phone, (x, HEADER))
        x += phone.width + gap
    canvas.paste(plot, (x, HEADER + (PHONE_HEIGHT - plot.height) // 2))
    return canvas


if __name__ == "__main__":
    main(*sys.argv[1:])

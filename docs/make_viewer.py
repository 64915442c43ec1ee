"""Take the pictures of the viewer for the docs (python docs/make_viewer.py RUN [GROUP]).

RUN is a trained run on phones, such as one of configs/snake.yaml, in a folder with other runs;
GROUP one of its groups. Stars, notes and a damaged episode are made in a copy of it. The wall of
phones is that of a small job of its own, and a game is played; `phones` or `play` in place of RUN
takes that picture alone.
Needs Chromium (AGENTRL_TEST_CHROMIUM, or /usr/bin/chromium).
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from agentrl import replay
from agentrl.runs.annotations import star, write_note
from agentrl.runs.run_paths import episode_file

FOLDER = Path(__file__).parent / "images"
WIDE, TALL, SMALL = (1280, 860), (390, 844), (640, 430)
PHONES = 16
JOB = [
    "number_game", "rollout.engine=hf", "rollout.launcher=local",
    f"devices.source=virtual:{PHONES}",
    f"rollout.concurrency={PHONES}", "devices.effect_delay_ms=[50, 300]", "warm_start.cache=null",
    "warm_start.episodes=200", "eval.baselines=[]", "logging=[file]", "run.name=number_game",
]  # fmt: skip
START_S = 180.0


def main(run: str, group: str | None = None) -> None:
    """Look at a run, and at a job of our own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("AGENTRL_TEST_CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
        )
        if run not in ("phones", "play"):
            _shoot_run(browser, run, group)
            _shoot_tokens(browser, run)
            _shoot_notes_and_states(browser, run)
        if run != "play":
            _shoot_phones(browser)
        if run != "phones":
            _shoot_play(browser)
        browser.close()


def _shoot_run(browser: Browser, run: str, group: str | None) -> None:
    opened = replay.open(run)
    trained = [s for s in opened.episodes(replay.Filter(split="train")) if not s.outcome.void]
    group = group or trained[-1].group
    best = max((s for s in trained if s.group == group), key=lambda s: (s.reward, s.turns))
    turn = max(1, best.turns // 3)
    labels = {s.label: s.step for s in opened.episodes(replay.Filter(split="eval"))}
    before, after = (
        f"before-sampled@{labels['before-sampled']}",
        f"after-sampled@{labels['after-sampled']}",
    )
    views = {
        "overview": ("", WIDE, "light"),
        "episodes": ("episodes?sort=reward", WIDE, "light"),
        "episode": (f"episodes/{best.id}?turn={turn}", WIDE, "light"),
        "episode_dark": (f"episodes/{best.id}?turn={turn}&tab=rewards", WIDE, "dark"),
        "episode_phone": (f"episodes/{best.id}?turn={turn}", TALL, "dark"),
        "group": (f"groups/{group}", WIDE, "light"),
        "compare": (f"compare?a={before}&b={after}", WIDE, "light"),
    }
    with _served(run) as url:
        for name, (path, size, scheme) in views.items():
            page = _open(browser, url + path, size, scheme)
            page.wait_for_timeout(1500)  # pictures and curves
            page.screenshot(path=FOLDER / f"viewer_{name}.png")
            page.context.close()
    with _served(str(Path(run).parent)) as url:
        page = _open(browser, url, WIDE, "light")
        page.wait_for_timeout(1500)
        page.screenshot(path=FOLDER / "viewer_runs.png")
        page.context.close()


def _shoot_tokens(browser: Browser, run: str) -> None:
    """The probabilities of a touch's coordinates, and of the least probable token of an episode."""
    with tempfile.TemporaryDirectory() as folder:
        play = [
            "eval",
            run,
            "--episodes",
            "1",
            "rollout.top_logprobs=10",
            "devices.source=virtual:1",
        ]
        recorded = [f"run.dir={folder}", "run.name=eval-model"]
        subprocess.run([sys.executable, "-m", "agentrl", *play, *recorded], check=True)
        opened = replay.open(Path(folder, "eval-model"))
        (summary,) = opened.episodes()
        turns = opened.episode(summary.id).episode.turns
        turn = min(range(len(turns)), key=lambda index: min(turns[index].reply_logprobs))
        token = turns[turn].reply_logprobs.index(min(turns[turn].reply_logprobs))
        with _served(f"{folder}/eval-model") as url:
            path = f"episodes/{summary.id}?turn={turn + 1}&tab=tokens&coordinates=1"
            page = _open(browser, url + path, WIDE, "light")
            page.locator(".token").nth(token).hover()
            page.wait_for_timeout(1500)
            page.screenshot(path=FOLDER / "viewer_tokens.png")
            page.context.close()


def _shoot_notes_and_states(browser: Browser, run: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder, "runs")
        copy = runs / Path(run).name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "model", "live"))
        opened = replay.open(copy)
        shown = [s for s in opened.episodes(replay.Filter(split="eval")) if not s.outcome.void]
        shown.sort(key=lambda s: (s.step, s.time, s.id), reverse=True)
        for summary in shown[1:9:3]:
            star(opened.path, summary, starred=True)
        write_note(opened.path, shown[1], "Plays well until the end", seen="")
        damaged = episode_file(copy, shown[-1].id)
        damaged.write_bytes(b"damaged")
        with _served(str(runs)) as url:
            base = f"{url}runs/{copy.name}/"
            page = _open(browser, f"{base}episodes?view=gallery&sort=step&query=split=eval", WIDE)
            page.wait_for_timeout(6000)
            page.screenshot(path=FOLDER / "viewer_gallery.png")
            page.context.close()
            pictures = []
            for scheme in ("light", "dark"):
                row = []
                for path in ("episodes?query=turns>9999", f"episodes/{shown[-1].id}", "phones"):
                    page = _open(browser, base + path, SMALL, scheme)
                    state = page.locator(".state")
                    state.scroll_into_view_if_needed()
                    page.wait_for_timeout(500)
                    row.append(cv2.imdecode(np.frombuffer(page.screenshot(), np.uint8), 1))
                    page.context.close()
                pictures.append(np.hstack(row))
            cv2.imwrite(str(FOLDER / "viewer_states.png"), np.vstack(pictures))


def _shoot_phones(browser: Browser) -> None:
    """While demonstrations are played, as soon as every phone has a picture and something to do."""
    with tempfile.TemporaryDirectory() as folder, _training(Path(folder)) as run:
        _wait((run / "episodes").is_dir)
        with _served(str(run)) as url:
            page = _open(browser, f"{url}phones", WIDE, "light")
            phones = page.locator(".phone", has_text="leased")
            _wait(lambda: phones.locator("img:visible").count() == PHONES)
            page.wait_for_timeout(4000)  # the games are somewhere, and not at their beginning
            _wait(lambda: phones.count() > PHONES // 2)
            page.screenshot(path=FOLDER / "viewer_phones.png")
            page.context.close()


def _shoot_play(browser: Browser) -> None:
    """A game played by arrow keys, during a swipe."""
    with tempfile.TemporaryDirectory() as folder, _playing(Path(folder)) as url:
        page = _open(browser, url, WIDE, "light")
        for turn, key in enumerate(
            ("Up", "Left", "Up", "Left", "Down", "Left", "Up", "Left") * 2, 1
        ):
            page.get_by_text("Your turn").wait_for()
            page.keyboard.press(f"Arrow{key}")
            page.locator(".turns li").nth(turn - 1).wait_for()
        page.get_by_text("Your turn").wait_for()
        page.wait_for_timeout(500)
        box = page.locator(".stage img").bounding_box()
        assert box is not None
        points = [
            (box["x"] + x * box["width"], box["y"] + 0.55 * box["height"]) for x in (0.7, 0.3)
        ]
        page.mouse.move(*points[0])
        page.mouse.down()
        page.mouse.move(*points[1])
        page.screenshot(path=FOLDER / "viewer_play.png")
        page.context.close()


def _open(browser: Browser, url: str, size: tuple[int, int], scheme: str = "light") -> Page:
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(url, wait_until="load")
    return page


@contextmanager
def _served(run: str) -> Iterator[str]:
    command = [sys.executable, "-m", "agentrl", "view", run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().partition("#")[0]
        finally:
            server.terminate()


@contextmanager
def _playing(folder: Path) -> Iterator[str]:
    game = ["play", "game_2048", "env.kwargs.mode=touch", f"run.dir={folder}"]
    command = [sys.executable, "-m", "agentrl", *game, "--browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[0]
        finally:
            server.send_signal(signal.SIGINT)


@contextmanager
def _training(folder: Path) -> Iterator[Path]:
    command = [sys.executable, "-m", "agentrl", "train", *JOB, f"run.dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
        try:
            yield folder / "number_game"
        finally:
            job.send_signal(signal.SIGINT)


def _wait(for_what: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not for_what():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing within {START_S:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])

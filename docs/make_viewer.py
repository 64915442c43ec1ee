"""Take the pictures of the viewer for the docs (python docs/make_viewer.py RUN [GROUP]).

RUN is a trained run on phones, such as one of configs/snake.yaml; GROUP one of its groups. Needs
Chromium (AGENTRL_TEST_CHROMIUM, or /usr/bin/chromium).
"""

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from agentrl import replay

FOLDER = Path(__file__).parent / "images"
WIDE, TALL = (1280, 860), (390, 844)


def main(run: str, group: str | None = None) -> None:
    """Serve the run, and look at it."""
    opened = replay.open(run)
    trained = [s for s in opened.episodes(replay.Filter(split="train")) if not s.outcome.void]
    group = group or trained[-1].group
    best = max((s for s in trained if s.group == group), key=lambda s: (s.total, s.turns))
    turn = max(1, best.turns // 3)
    labels = {s.label: s.step for s in opened.episodes(replay.Filter(split="eval"))}
    before, after = (
        f"before-sampled@{labels['before-sampled']}",
        f"after-sampled@{labels['after-sampled']}",
    )
    views = {
        "overview": ("", WIDE, "light"),
        "episodes": ("episodes?sort=total", WIDE, "light"),
        "episode": (f"episodes/{best.id}?turn={turn}", WIDE, "light"),
        "episode_dark": (f"episodes/{best.id}?turn={turn}&tab=rewards", WIDE, "dark"),
        "episode_phone": (f"episodes/{best.id}?turn={turn}", TALL, "dark"),
        "group": (f"groups/{group}", WIDE, "light"),
        "compare": (f"compare?a={before}&b={after}", WIDE, "light"),
    }
    command = [sys.executable, "-m", "agentrl", "replay", run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().partition("#")[0]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("AGENTRL_TEST_CHROMIUM", "/usr/bin/chromium"),
                args=["--no-sandbox"] if os.geteuid() == 0 else [],
            )
            for name, (path, (width, height), scheme) in views.items():
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                page.goto(url + path, wait_until="load")
                page.wait_for_timeout(1500)  # pictures and curves
                page.screenshot(path=FOLDER / f"viewer_{name}.png")
                context.close()
            browser.close()
        server.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])

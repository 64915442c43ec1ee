"""The pages of a folder of runs."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from agentrl.errors import ConfigError
from agentrl.files import lock_folder
from agentrl.viewer.runs_folder import AllRuns
from agentrl.viewer.viewer_server import RunsServer
from tests.viewer import runs
from tests.viewer.conftest import Open, ask

SPREAD = 0.1


def a_run(folder: Path, name: str, *, seed: int = 0, rate: str = "1e-4", steps: int = 5) -> Path:
    """A finished run whose rewards are its steps, shifted by its seed."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(
        f"seed: {seed}\nrun: {{name: {name}}}\nenv: {{id: Lake-v0}}\noptim: {{lr: {rate}}}\n"
        f"algorithm: {{name: grpo}}\ntrain: {{steps: {steps}}}\n"
    )
    lines = [
        {"stage": "reinforcement", "step": n, "time": 1.0, "train/reward": n + SPREAD * seed}
        for n in range(1, steps + 1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = {"sampled": {"reward": steps + SPREAD * seed}}
    (run / "summary.json").write_text(json.dumps({"after": after, "steps": steps}))
    (run / "state.json").write_text(json.dumps({"step": steps}))
    (run / "episodes").mkdir()
    with lock_folder(run):
        pass
    return run


def post(url: str, path: str, **parameters: str) -> int:
    """The status of a POST request."""
    token = parameters.pop("token", "")
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    headers = {"x-agentrl-token": token}
    connection.request("POST", f"{path}?{urlencode(parameters)}", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "runs"
    for seed in range(3):
        a_run(place, f"seed-{seed}", seed=seed)
    a_run(place, "sweep/lr=1e-3 & <b>", rate="1e-3")
    runs.run(place / "game")
    return place


@pytest.fixture
def served(folder: Path) -> Iterator[RunsServer]:
    server = RunsServer(folder)
    yield server
    server.close()


def test_each_run_is_a_row_and_seeds_of_one_configuration_share_a_group(folder: Path) -> None:
    rows = {row["name"]: row for row in AllRuns(folder).rows()}
    assert rows.keys() == {"seed-0", "seed-1", "seed-2", "sweep/lr=1e-3 & <b>", "game"}
    groups = {rows[f"seed-{seed}"]["group"] for seed in range(3)}
    assert len(groups) == 1
    assert rows["sweep/lr=1e-3 & <b>"]["group"] not in groups
    assert rows["seed-2"]["result"] == "reward 5.2"


def test_rows_follow_the_files(folder: Path) -> None:
    listing = AllRuns(folder)
    listing.rows()
    (folder / "seed-0" / "state.json").write_text(json.dumps({"step": 7}))
    with lock_folder(folder / "seed-0"):
        (row,) = [row for row in listing.rows() if row["name"] == "seed-0"]
    assert (row["step"], row["state"]) == (7, "running")


def test_curves_and_differences_are_those_of_the_chosen_runs(folder: Path) -> None:
    found = AllRuns(folder).curves(["seed-1", "sweep/lr=1e-3 & <b>"], None)
    assert found["metric"] == "train/reward"
    assert found["curves"][0]["points"] == [(n, n + SPREAD) for n in range(1, 6)]
    keys = {one["key"]: one["values"] for one in found["differences"]}
    assert keys == {
        "seed": {"seed-1": "1", "sweep/lr=1e-3 & <b>": "0"},
        "optim.lr": {"seed-1": "0.0001", "sweep/lr=1e-3 & <b>": "0.001"},
    }
    with pytest.raises(ConfigError, match="no run 'absent'"):
        AllRuns(folder).curves(["absent"], None)


def test_the_pages_of_a_run_are_below_its_name(served: RunsServer, folder: Path) -> None:
    for name in ("seed-0", "sweep/lr=1e-3%20&%20%3Cb%3E", "game"):
        status, _, body = ask(served.url, f"/runs/{name}/")
        assert status == 200
        assert b"<b>" not in body
        assert json.loads(ask(served.url, f"/runs/{name}/api/curves")[2])
    assert ask(served.url, "/runs/game/episodes/x")[0] == 200
    for path in ("/runs/absent/", "/runs/../", "/runs/%2e%2e/", "/runs/sweep/", "/runs/"):
        assert ask(served.url, path)[0] == 404, path
    assert ask(served.url, "/runs/game/api/nothing")[0] == 404
    status, _, body = ask(served.url, "/api/runs/curves")
    assert (status, json.loads(body)) == (422, {"error": "run= is missing"})
    assert ask(served.url, "/runs/game/api/run", Host="evil.example")[0] == 403


def test_changes_require_the_token_and_spare_running_jobs(served: RunsServer, folder: Path) -> None:
    def change(what: str, run: str, token: str = served.guard.token) -> int:
        return post(served.url, f"/api/runs/{what}", run=run, token=token)

    assert change("delete", "seed-0", token="") == 403
    with lock_folder(folder / "seed-0"):
        assert change("delete", "seed-0") == 404
    for name in ("..", "../runs/seed-0", "absent", "."):
        assert change("delete", name) == 404, name
    assert len(AllRuns(folder).rows()) == 5
    assert change("archive", "seed-0") == 200
    assert change("delete", "seed-1") == 200
    assert (folder / "archive" / "seed-0" / "summary.json").is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["archive", "game", "seed-2", "sweep"]


def test_links_and_recordings_are_archived_as_they_are(folder: Path) -> None:
    a_run(folder.parent / "elsewhere", "real")
    (folder / "link").symlink_to("../elsewhere/real")
    shutil.rmtree(folder / "game")
    (a_run(folder, "game") / ".lock").unlink()
    a_run(folder, "bad\nname")
    os.rename(a_run(folder, "badly"), os.fsencode(folder) + b"/bad\xff")
    runs = AllRuns(folder)
    assert not any(row["name"].startswith("bad") for row in runs.rows())
    for name in ("link", "game"):
        runs.archive(name)
    archived = {row["name"]: row["state"] for row in AllRuns(folder / "archive").rows()}
    assert archived == {"link": "finished", "game": None}


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_runs_are_filtered_chosen_and_overlaid(
    served: RunsServer, open_page: Open, width: int
) -> None:
    page = open_page(served.address(), width)
    expect(page.get_by_text("5 runs", exact=True)).to_be_visible()
    result = page.get_by_role("cell", name="reward 5.2").bounding_box()
    assert result["x"] + result["width"] < width
    page.get_by_role("button", name="Select none").click()
    expect(page.get_by_label("Metric")).to_be_hidden()
    page.get_by_label("Search").fill("lake grpo")
    expect(page.get_by_text("4 of 5 runs")).to_be_visible()
    page.get_by_label("Search").fill("seed-")
    page.get_by_role("button", name="Select all shown").click()
    expect(page.locator(".u-legend .u-series:not(.unlisted)")).to_have_count(4)  # with the step
    page.get_by_label("seeds as mean and range").check()
    legend = page.locator(".u-legend .u-series:not(.unlisted)").nth(1)
    expect(legend).to_contain_text("and 2 more seeds")
    expect(legend).to_contain_text("5.1")  # the mean of 5, 5.1 and 5.2
    expect(page.get_by_role("row", name="seed 2 1 0")).to_be_visible()
    expect(page.locator(".differences th").first).to_have_css("position", "sticky")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.reload()  # the address holds the choice
    expect(legend).to_contain_text("and 2 more seeds")
    page.get_by_label("Choose seed-0").uncheck()
    expect(legend).to_contain_text(re.compile("and 1 more seed(?!s)"))


def test_a_metric_is_found_by_a_part_of_its_name(served: RunsServer, open_page: Open) -> None:
    page = open_page(served.address())
    page.get_by_label("Choose game").check()
    metric, title = page.get_by_label("Metric"), page.locator(".overlay figcaption")
    expect(metric).to_have_value("train/reward")
    expect(page.locator("#metrics option")).to_have_count(10)
    metric.focus()
    expect(metric).to_have_value("")  # so that the browser suggests all metrics
    page.keyboard.press("Tab")
    expect(metric).to_have_value("train/reward")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("turns s")
    page.keyboard.press("Enter")
    expect(title).to_have_text("rollout/turns_per_s")
    assert "metric=rollout%2Fturns_per_s" in page.url
    metric.fill("absent")
    metric.press("Enter")
    expect(page.get_by_text("No metric of the selected runs has “absent”")).to_be_visible()
    metric.fill("train/turns")  # as a suggestion does
    expect(title).to_have_text("train/turns")
    metric.click()
    expect(metric).to_have_value("")
    metric.blur()
    expect(metric).to_have_value("train/turns")


def test_the_stage_of_a_running_job_is_followed(
    served: RunsServer, open_page: Open, folder: Path
) -> None:
    stage, state = folder / "game" / "stage", "no training step done yet"
    (folder / "game" / "metrics.jsonl").unlink()
    with lock_folder(folder / "game"):
        stage.write_text("demonstrations")
        page = open_page(served.address())
        shown = page.get_by_role("row", name="game").locator("small")
        expect(shown).to_have_text("demonstrations")
        stage.write_text("warm start")
        expect(shown).to_have_text("warm start")
        page.get_by_role("link", name="game").click()
        expect(page.get_by_text(f"running: warm start, {state}")).to_be_visible()
        stage.write_text("engine start")
        expect(page.get_by_text(f"running: engine start, {state}")).to_be_visible()
    expect(page.get_by_text("stopped after 0 steps", exact=True)).to_be_visible()
    stopped = page.locator(".state", has_text="The run stopped before its first step")
    expect(stopped).to_contain_text("agentrl train …/game --resume")


def test_a_run_opens_and_leads_back(served: RunsServer, open_page: Open) -> None:
    page = open_page(served.address())
    page.get_by_role("link", name="game").click()
    expect(page.get_by_role("heading", name="game")).to_be_visible()
    page.get_by_role("link", name="Episodes").click()
    page.locator(".list tbody a").first.click()
    expect(page.locator(".picture img")).to_have_js_property("complete", True)
    assert page.locator(".picture img").evaluate("image => image.naturalWidth") == 180
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_a_run_is_deleted_after_a_confirmation(
    served: RunsServer, open_page: Open, folder: Path
) -> None:
    page = open_page(served.address())
    page.get_by_role("button", name="Select none").click()
    page.get_by_label("choose sweep/lr=1e-3 & <b>").check()
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete").click()
    assert (folder / "sweep" / "lr=1e-3 & <b>").is_dir()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("4 runs", exact=True)).to_be_visible()
    assert not (folder / "sweep" / "lr=1e-3 & <b>").exists()


def test_a_run_is_tagged_found_by_its_tag_and_renamed(
    served: RunsServer, open_page: Open, folder: Path
) -> None:
    page = open_page(served.address())
    page.get_by_role("button", name="Select none").click()
    page.get_by_label("choose seed-1").check()
    page.once("dialog", lambda dialog: dialog.accept("keep <b>"))
    page.get_by_role("button", name="Add a tag").click()
    tag = page.get_by_role("button", name="Remove the tag keep <b> from seed-1")
    expect(tag).to_be_visible()
    assert json.loads((folder / "seed-1" / "tags.json").read_text()) == ["keep <b>"]
    page.get_by_label("Search").fill("keep")
    expect(page.get_by_text("1 of 5 runs")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept("best of three"))
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("link", name="best of three")).to_be_visible()
    assert (folder / "best of three" / "config.yaml").is_file()
    page.get_by_role("button", name="Remove the tag keep <b> from best of three").click()
    expect(page.get_by_text("0 of 5 runs")).to_be_visible()


def test_a_name_that_is_taken_or_leads_elsewhere_is_refused(folder: Path) -> None:
    listing = AllRuns(folder)
    for name, words in {
        "seed-1": "exists", "../up": "not a valid run", "": "not a valid", ".hidden": "not a valid",
        "archive": "not a valid", "x" * 200: "not a valid",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            listing.rename("seed-0", name)
    with pytest.raises(ConfigError, match="sweep finds its runs by name"):
        listing.rename("sweep/lr=1e-3 & <b>", "other")
    with lock_folder(folder / "seed-0"), pytest.raises(ConfigError, match="another process"):
        listing.rename("seed-0", "other")
    with pytest.raises(ConfigError, match="1 to 40 printable characters"):
        listing.tag("seed-0", ["a", "\n"])


def test_the_first_overlay_has_runs_of_one_environment(
    served: RunsServer, open_page: Open, folder: Path
) -> None:
    newest = a_run(folder, "newest")
    config = newest / "config.yaml"
    config.write_text(config.read_text().replace("Lake-v0", "Other-v0"))
    page = open_page(served.address())
    expect(page.get_by_label("choose newest")).to_be_checked()
    expect(page.locator(".list input:checked")).to_have_count(1)


def test_the_start_of_a_run_is_in_view_beside_a_long_name_of_an_environment(
    served: RunsServer, open_page: Open, folder: Path
) -> None:
    config = folder / "seed-0" / "config.yaml"
    name = "my_package.environments:MiniGrid-LockedRoom-Obstructed-Random-Start-And-Goal-5x5-v0"
    config.write_text(config.read_text().replace("Lake-v0", name))
    page = open_page(served.address(), 1280)
    started = page.get_by_role("row").filter(has_text="5x5-v0").get_by_role("cell").last
    expect(started).to_be_in_viewport(ratio=1)
    assert page.locator("table").first.evaluate("t => t.offsetWidth <= t.parentElement.clientWidth")


def test_fifty_runs_are_overlaid_in_distinct_colors(tmp_path: Path, open_page: Open) -> None:
    for seed in range(50):
        a_run(tmp_path, f"run-{seed:02d}", seed=seed)
    server = RunsServer(tmp_path)
    try:
        page = open_page(server.address())
        expect(page.get_by_text("50 runs", exact=True)).to_be_visible()
        page.get_by_role("button", name="Select all shown").click()
        expect(page.locator(".u-legend .u-series:not(.unlisted)")).to_have_count(51)
        colors = page.locator(".list .dot").evaluate_all(
            "dots => dots.map(dot => getComputedStyle(dot).backgroundColor)"
        )
        assert len(set(colors)) == 50
        first = page.get_by_role("row", name="run-00").locator(".dot")
        before = first.evaluate("dot => getComputedStyle(dot).backgroundColor")
        a_run(tmp_path, "newer")
        expect(page.get_by_text("51 runs", exact=True)).to_be_visible()
        assert first.evaluate("dot => getComputedStyle(dot).backgroundColor") == before
    finally:
        server.close()

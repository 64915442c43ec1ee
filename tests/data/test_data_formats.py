"""The rows of other trainers: their prompts, token by token, and the scores of two replies."""

import pytest

from tests.test_benchmarks import load
from tests.test_docs import DOCS

data_formats = load("data_formats")
PAGE = (DOCS / "data.md").read_text()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    pytest.importorskip("trl")
    pytest.importorskip("pyarrow")
    pytest.importorskip("math_verify")
    folder = tmp_path_factory.mktemp("formats")
    return data_formats.played(data_formats.build_model(folder / "model"), folder)


@pytest.mark.parametrize("index", range(len(data_formats.FORMATS)), ids=lambda index: (
    f"{data_formats.FORMATS[index].trainer}, {data_formats.FORMATS[index].name}"
))  # fmt: skip
def test_the_prompt_is_theirs_and_the_right_reply_scores_more(played, index):
    one, found = played[index]
    assert found.is_their_prompt, found.shown
    assert (found.right, found.wrong) == (1, -1 if "dapo" in one.name else 0)


def test_the_page_has_the_table_of_the_benchmark(played):
    """But for the rewards, which there are those of the trainers."""

    def without_scores(line):
        cells = line.split(" | ")
        return [*cells[:3], cells[-1]]

    lines = list(map(without_scores, data_formats.table(played)))
    start = PAGE.index("| from | row |")
    shown = PAGE[start:].partition("\n\n")[0].splitlines()
    assert list(map(without_scores, shown))[2:] == lines[2:]

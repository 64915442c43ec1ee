from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.envs.sokoban.board import MOVES, Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.level_generator import LevelKind, generate
from agentrl.envs.sokoban.level_sources import levels_in, read_levels
from agentrl.envs.sokoban.level_split import canonical, room_belongs
from agentrl.envs.sokoban.solver import SearchLimitReached, frozen, is_deadlocked, solve
from agentrl.errors import ConfigError
from tests.envs.sokoban.search import move, shortest

SEEDS = st.integers(min_value=0, max_value=2**32)
KINDS = st.sampled_from(
    [
        LevelKind(height=5, width=5),
        LevelKind(height=4, width=8),
        LevelKind(height=3, width=5),
        LevelKind(height=6, width=5, boxes=2),
        LevelKind(height=6, width=6, boxes=3),
    ]
)
WALKS = st.lists(st.integers(min_value=0, max_value=3), max_size=60)


@st.composite
def boards(draw: st.DrawFn) -> Board:
    """Draw boards, solvable or not, with walls, boxes, targets and player anywhere."""
    height, width = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    count = draw(st.integers(1, 3))
    cells = draw(st.permutations(range(height * width)))
    walls = set(cells[: draw(st.integers(0, 3))])
    free = [cell for cell in cells if cell not in walls]
    count = min(count, len(free) - 1)
    if count < 1:
        free, walls, count = list(cells), set(), 1
    boxes, player = set(free[:count]), free[count]
    targets = set(draw(st.permutations(free))[:count])
    rows = ["#" * (width + 2)]
    for row in range(height):
        line = ""
        for cell in range(row * width, (row + 1) * width):
            mark = "$" if cell in boxes else "@" if cell == player else " "
            if cell in targets:
                mark = {"$": "*", "@": "+", " ": "."}[mark]
            line += "#" if cell in walls else mark
        rows.append(f"#{line}#")
    rows.append(rows[0])
    try:
        return parse("\n".join(rows))
    except ConfigError:  # something that the player can never reach
        return generate(draw(SEEDS), LevelKind(height=5, width=5)).board


@given(SEEDS, KINDS, WALKS)
@settings(max_examples=50, deadline=None)
def test_moves_agree_with_a_plain_implementation(
    seed: int, kind: LevelKind, walk: list[int]
) -> None:
    board = generate(seed, kind).board
    for direction in walk:
        text = board.text()
        board = board.move(direction)
        assert board.text() == move(text, MOVES[direction])
        assert board.num_boxes == kind.boxes
        assert not board.boxes >> board.player & 1
        assert not (board.boxes | 1 << board.player) & ~board.room.floor
        assert board.on_target == board.text().count("*")
        assert board.solved == ("$" not in board.text())


@given(boards())
@settings(max_examples=150, deadline=None)
def test_the_solver_agrees_with_an_exhaustive_search(board: Board) -> None:
    moves, wanted = solve(board), shortest(board.text())
    assert (None if moves is None else len(moves)) == wanted
    for direction in moves or ():
        board = board.move(direction)
    assert board.solved or moves is None


@given(boards())
@settings(max_examples=150, deadline=None)
def test_a_solvable_board_is_never_a_deadlock(board: Board) -> None:
    if is_deadlocked(board):
        assert shortest(board.text()) is None


@given(SEEDS, KINDS)
@settings(max_examples=40, deadline=None)
def test_no_board_of_a_solution_is_a_deadlock(seed: int, kind: LevelKind) -> None:
    board = generate(seed, kind).board
    for direction in solve(board) or ():
        assert not is_deadlocked(board)
        board = board.move(direction)
    assert board.solved
    assert not is_deadlocked(board)


@given(SEEDS, KINDS, WALKS)
@settings(max_examples=60, deadline=None)
def test_a_lost_board_of_a_walk_has_no_solution(
    seed: int, kind: LevelKind, walk: list[int]
) -> None:
    board = generate(seed, kind).board
    for direction in walk:
        board = board.move(direction)
    if is_deadlocked(board):
        assert shortest(board.text()) is None


def test_most_lost_boards_of_one_box_are_found() -> None:
    lost = found = 0
    for seed in range(60):
        board = generate(seed, LevelKind(height=5, width=5)).board
        for step in range(40):
            board = board.move((seed * 7 + step * step * 5 + step // 3) % 4)
        if shortest(board.text()) is None:
            lost += 1
            found += is_deadlocked(board)
    assert lost > 10
    assert found >= 0.9 * lost


FROZEN = """\
########
#  .  .#
#  $$  #
#  $$  #
# .@ . #
########"""
LOOSE = """\
########
#  .  .#
#  $$  #
#  $   #
# .@   #
########"""


def test_four_boxes_in_a_square_are_frozen_and_three_are_not() -> None:
    board = parse(FROZEN)
    assert frozen(board) == board.boxes
    assert is_deadlocked(board)
    assert not frozen(parse(LOOSE))
    assert not is_deadlocked(parse(LOOSE))


def test_boxes_frozen_on_their_targets_are_not_lost() -> None:
    board = parse("#######\n#**   #\n#** $ #\n# @  .#\n#######")
    assert frozen(board).bit_count() == 4
    assert not is_deadlocked(board)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("#####\n#$ .#\n# @ #\n#####", True),  # in a corner
        ("######\n# $  #\n# @  #\n#   .#\n######", True),  # at a wall without a target
        ("######\n# $ .#\n# @  #\n#    #\n######", False),
    ],
)
def test_corners_and_walls_without_a_target_ruin_a_box(text: str, lost: bool) -> None:
    assert is_deadlocked(parse(text)) is lost
    assert (shortest(text) is None) is lost


def test_a_search_beyond_its_limit_raises() -> None:
    board = generate(0, LevelKind(height=8, width=8, boxes=3)).board
    with pytest.raises(SearchLimitReached, match="after 1 states"):
        solve(board, limit=1)


# --- generated levels -----------------------------------------------------------------------


@given(SEEDS, KINDS)
@settings(max_examples=50, deadline=None)
def test_a_generated_level_can_be_solved_in_the_moves_that_it_says(
    seed: int, kind: LevelKind
) -> None:
    level = generate(seed, kind)
    assert level == generate(seed, kind)
    assert level.optimal == shortest(level.board.text())
    assert level.board.on_target == 0
    assert parse(level.board.text()) == level.board
    assert (level.board.room.height, level.board.room.width) == (kind.height, kind.width)
    assert level.board.num_boxes == kind.boxes


def test_difficulty_is_the_length_of_a_shortest_solution() -> None:
    kind = LevelKind(height=7, width=7, boxes=2, min_moves=15, max_moves=20)
    lengths = {generate(seed, kind).optimal for seed in range(30)}
    assert lengths <= set(range(15, 21))
    assert len(lengths) > 3


def test_five_by_five_with_one_box_has_hundreds_of_levels() -> None:
    kind = LevelKind(height=5, width=5)
    assert len({generate(seed, kind).board for seed in range(1000)}) > 500


def test_boards_of_held_out_rooms_do_not_occur_in_training_even_rotated_or_mirrored() -> None:
    met = {}
    for split in ("train", "eval"):
        kind = LevelKind(height=5, width=5, split=split)
        rooms = {generate(seed, kind).board.room for seed in range(400)}
        assert all(room_belongs(room, split, kind.held_out) for room in rooms)
        met[split] = {canonical(room) for room in rooms}
    assert len(met["eval"]) > 5
    assert not met["train"] & met["eval"]


def test_levels_can_be_held_out_one_by_one() -> None:
    met = {}
    for split in ("train", "eval"):
        kind = LevelKind(height=5, width=5, min_moves=3, split=split, held_out_by="level")
        met[split] = {generate(seed, kind).board.text() for seed in range(400)}
    assert min(map(len, met.values())) > 50
    assert not met["train"] & met["eval"]


def test_a_turned_or_mirrored_room_is_the_same_room() -> None:
    rows = ["#####", "#.  #", "#$@ #", "## ##", "#####"]
    turned = ["".join(column) for column in zip(*rows[::-1], strict=True)]
    shapes = [rows, [row[::-1] for row in rows], rows[::-1], turned, turned[::-1]]
    assert len({canonical(parse("\n".join(shape)).room) for shape in shapes}) == 1
    other = "#####\n# . #\n#$@ #\n## ##\n#####"
    assert canonical(parse(other).room) != canonical(parse("\n".join(rows)).room)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"height": 2}, "height is 2"),
        ({"width": 99}, "width is 99"),
        ({"boxes": 0}, "boxes is 0"),
        ({"height": 5, "width": 5, "boxes": 4}, "boxes is 4"),
        ({"min_moves": 5, "max_moves": 4}, "min_moves is 5"),
        ({"split": "test"}, "split is 'test'"),
        ({"held_out": 1.0}, "held_out is 1.0"),
    ],
)
def test_impossible_level_kinds_are_rejected_at_once(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LevelKind(**settings)


def test_too_rare_levels_are_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.envs.sokoban.level_generator._TRIES", 100)
    with pytest.raises(ConfigError, match="no level found in 100 tries"):
        generate(0, LevelKind(height=5, width=5, min_moves=90))


# --- files of levels ------------------------------------------------------------------------


def written(boards: list[Board]) -> str:
    """Return the contents of a file with these levels."""
    return "".join(f"; {number}\n{board.text()}\n\n" for number, board in enumerate(boards))


@given(st.lists(st.tuples(SEEDS, KINDS), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_written_levels_are_read_back(drawn: list[tuple[int, LevelKind]]) -> None:
    levels = [generate(seed, kind).board for seed, kind in drawn]
    assert levels_in(written(levels)) == levels


@given(st.text(alphabet="# .$@*+;\n-x0", max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_is_parsed_or_rejected_with_a_config_error(text: str) -> None:
    said, levels = "", []
    try:
        levels = levels_in(text, "some.txt")
    except ConfigError as error:
        said = str(error)
    assert said.startswith("some.txt") == (not levels)
    assert not levels or levels_in(written(levels)) == levels


SOUND = "; 7\n#####\n#@$.#\n#####\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("; 0\n#####\n#@$x#\n#####\n", r"some.txt, line 3, column 4: 'x' is not one of"),
        (SOUND + "\n; 8\n#####\n#@$ #\n#####\n", r"some.txt, line 7: 1 boxes .* and 0 targets"),
        ("#####\n# $.#\n#####\n", r"line 1: 0 players"),
        ("#####\n#@$.\n#####\n", r"line 2, column 5: the player can leave"),
        ("##  #\n#@$.#\n#####\n", r"line 1, column 3: the player can leave"),
        (
            "#######\n#@$.#$#\n#####.#\n#######\n",
            r"line 2, column 6: the player can never reach this box",
        ),
        ("#####\n#@ *#\n#####\n", r"line 1: every box is already on a target"),
        ("; only a name\n\n", r"some.txt: contains no level"),
    ],
)
def test_a_broken_level_is_named_by_file_line_and_column(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        levels_in(text, "some.txt")


def test_a_folder_is_read_file_by_file_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "001.txt").write_text(SOUND)
    (tmp_path / "000.txt").write_text(
        "; 0\r\n######\r\n#@$ .#\r\n######\r\n"
    )  # as written on Windows
    (tmp_path / "sub" / "002.txt").write_text(SOUND.replace("@$.", ".$@"))
    (tmp_path / "notes.md").write_text("no level")
    texts = [board.text().split("\n")[1] for board in read_levels(str(tmp_path))]
    assert texts == ["#@$ .#", "#@$.#", "#.$@#"]


def test_missing_files_are_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no \.txt file"):
        read_levels(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_levels(str(tmp_path / "none.txt"))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe#")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_levels(str(tmp_path / "bytes.txt"))

"""Copy mode without a screen: keys in, cursor, view, selection and what is copied out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_panes.copy_mode import TEXT_MAX, CopyMode, Left, Selection, Shape, told_size
from quicksand_vt import Position, Terminal

from tests.conftest import examples
from tests.each import each
from tests.unit.terminal.hostile import OUTPUT

TEXT = "one two three\n  four (five)\n\nsix\nseven\n\neight nine"


def begun(text: str = TEXT, columns: int = 20, rows: int = 4) -> CopyMode:
    """Copy mode of a terminal that shows the end of ``text``, the cursor at its end."""
    terminal = Terminal(columns, rows)
    terminal.feed(text.replace("\n", "\r\n").encode())
    cursor = Position(terminal.cursor.line, terminal.cursor.x)
    return CopyMode(terminal.freeze(), height=rows, cursor=cursor)


def press(mode: CopyMode, *keys: str) -> Left | None:
    """Press keys, searching to the end after each."""
    left = None
    for key in keys:
        left = mode.press(key)
        while mode.is_searching:
            mode.search_on(1.0)
    return left


# Moving


@each(
    ("keys", "place"),
    [
        ("g", (0, 0)),
        ("g w", (0, 4)),
        ("g 2 w", (0, 8)),
        ("g 2 w b", (0, 4)),
        ("g e", (0, 2)),
        ("g $", (0, 12)),
        ("g $ 0", (0, 0)),
        ("g j ^", (1, 2)),
        ("g 3 l", (0, 3)),
        ("g 1 0 l", (0, 10)),
        ("g }", (2, 0)),
        ("g } }", (5, 0)),
        ("G {", (5, 0)),
        ("G { {", (2, 0)),
        ("G { { {", (0, 0)),
        ("g H", (0, 0)),
        ("g M", (2, 0)),
        ("g L", (3, 0)),
        ("g ctrl+d", (2, 0)),
        ("g ctrl+f", (2, 0)),
        ("g ctrl+f ctrl+u", (0, 0)),
        ("g pagedown pagedown pagedown pagedown", (6, 0)),
        ("g right down left home end", (1, 12)),
        ("g 9 9 9 9 9 j", (6, 0)),
        ("k", (5, 10)),
    ],
)
def test_the_cursor_moves(keys: str, place: tuple[int, int]) -> None:
    mode = begun()
    assert press(mode, *keys.split()) is None
    assert mode.cursor == place
    assert mode.top <= mode.cursor.line < mode.top + mode.height


def test_the_view_follows_the_cursor_and_the_cursor_the_view() -> None:
    mode = begun()
    assert mode.top == 3
    press(mode, "g")
    assert mode.top == 0
    press(mode, "ctrl+e")
    assert (mode.top, mode.cursor) == (1, (1, 0))
    press(mode, "5", "j")
    assert mode.top == 3
    press(mode, "ctrl+y")
    assert (mode.top, mode.cursor) == (2, (5, 0))
    mode.scroll(-99)
    assert (mode.top, mode.is_at_end) == (0, False)
    mode.scroll(99)
    assert (mode.top, mode.is_at_end) == (3, True)


def test_prompts_that_a_shell_marks_can_be_gone_to() -> None:
    prompt = "\x1b]133;A\x07$ \x1b]133;B\x07"
    mode = begun(f"{prompt}a\nb\nc\n{prompt}d\ne\n{prompt}")
    press(mode, "[")
    assert mode.cursor == (3, 0)
    press(mode, "2", "[")
    assert mode.cursor == (0, 0)
    press(mode, "]")
    assert mode.cursor == (3, 0)


def test_it_says_where_it_is() -> None:
    mode = begun()
    assert mode.told == "copy mode 7/7"
    press(mode, "g")
    assert mode.told == "copy mode 1/7"


# Selecting and copying


@each(
    ("keys", "text"),
    [
        ("g v e y", "one"),
        ("g v e enter", "one"),
        ("g v e ctrl+j", "one"),
        ("g w space e y", "two"),
        ("g w v b y", "one t"),
        ("g w v e o b y", "one two"),
        ("g V y", "one two three"),
        ("g w V j y", "one two three\n  four (five)"),
        ("g w ctrl+v l l j y", "two\nur"),
        ("g v l l ctrl+v j y", "one\n  f"),
        ("g w Y", "one two three"),
        ("g v v v $ y", "one two three"),
    ],
)
def test_what_is_selected_is_copied(keys: str, text: str) -> None:
    assert press(begun(), *(" " if key == "space" else key for key in keys.split())) == Left(text)


def test_a_line_is_copied_with_all_its_rows() -> None:
    mode = begun("abcdefghijklmnopqrstuvwxyz\nx", columns=10)
    assert press(mode, "g", "j", "Y") == Left("abcdefghijklmnopqrstuvwxyz")
    assert press(mode, "g", "V", "y") == Left("abcdefghijklmnopqrstuvwxyz")


def test_wide_characters_are_whole() -> None:
    mode = begun("你好 x")
    assert press(mode, "g", "v", "l", "y") == Left("你好")
    mode.select(Selection.of_word(mode.lines, Position(0, 3)))
    assert press(mode, "y") == Left("你好")


@each("keys", ["y", "enter", "g v e v y", "g } v y", "g } Y"])
def test_without_text_nothing_is_copied_and_it_says_so(keys: str) -> None:
    mode = begun()
    assert press(mode, *keys.split()) is None
    assert mode.bar
    press(mode, "j")
    assert not mode.bar, "it is told until the next key"


def test_q_leaves_and_escape_goes_back_step_by_step() -> None:
    assert press(begun(), "g", "v", "q") == Left()
    mode = begun()
    press(mode, *"/two", "enter", "v")
    assert press(mode, "escape") is None
    assert mode.selection is None and mode.search is not None
    assert press(mode, "escape") is None
    assert mode.search is None
    assert press(mode, "escape") == Left()


def test_what_is_dragged_over_is_selected_also_beyond_the_view() -> None:
    mode = begun()
    mode.drag(Position(6, 4), Position(1, 8), Shape.CHARACTERS)
    assert mode.top == 1
    assert mode.selection is not None
    assert mode.selection.text == "five)\n\nsix\nseven\n\neight"
    mode.drag(Position(6, 4), Position(-50, -50), Shape.CHARACTERS)
    assert mode.cursor == (0, 0)


def test_a_size_is_told_in_words() -> None:
    assert told_size("a") == "1 character"
    assert told_size("ab") == "2 characters"
    assert told_size("a\nb") == "2 lines, 3 characters"


# Searching


def test_search_as_one_types() -> None:
    mode = begun()
    press(mode, "?")
    assert mode.bar == "?"
    press(mode, "f")
    assert mode.cursor == (1, 8)
    press(mode, "o")
    assert (mode.cursor, mode.bar) == ((1, 2), "?fo")
    assert mode.told == "copy mode 2/7 · 1 of 1 match"
    press(mode, "x")
    assert (mode.cursor, mode.told) == ((6, 10), "copy mode 7/7 · no match")
    press(mode, "backspace", "enter")
    assert (mode.cursor, mode.bar) == ((1, 2), "")


def test_n_goes_on_in_the_direction_of_the_search_and_around() -> None:
    mode = begun("ab\nab\nab")
    press(mode, "g", "/", "a", "enter")
    assert mode.cursor == (1, 0)
    press(mode, "n")
    assert (mode.cursor, mode.told) == ((2, 0), "copy mode 3/4 · 3 of 3 matches")
    press(mode, "n")
    assert (mode.cursor, mode.bar) == ((0, 0), "From the beginning again")
    press(mode, "N")
    assert (mode.cursor, mode.bar) == ((2, 0), "From the end again")
    press(mode, "?", "b", "enter")
    assert mode.cursor == (1, 1)
    press(mode, "n")
    assert mode.cursor == (0, 1)
    press(mode, "N")
    assert mode.cursor == (1, 1)


def test_n_before_a_search_is_done_waits_for_it() -> None:
    mode = begun("ab\nab\nab")
    for key in ("g", "/", "a", "enter", "n"):
        mode.press(key)
    assert mode.is_searching
    while mode.is_searching:
        mode.search_on(0)
    assert mode.cursor == (2, 0)


def test_escape_takes_a_search_back() -> None:
    mode = begun()
    press(mode, "?", *"six", "enter")
    place = mode.cursor
    press(mode, "?", *"one", "escape")
    assert mode.cursor == place
    assert mode.search is not None and mode.search.text == "six"
    press(mode, "/", "backspace")
    assert mode.prompt is None


def test_an_empty_search_is_the_last_one_again() -> None:
    mode = begun("ab\nab\nab")
    press(mode, "?", "a", "enter")
    assert mode.cursor == (2, 0)
    press(mode, "?", "enter")
    assert mode.cursor == (1, 0)
    press(mode, "/", "enter")
    assert mode.cursor == (2, 0)


def test_without_a_search_n_says_so() -> None:
    mode = begun()
    press(mode, "n")
    assert mode.bar == "Nothing was searched for: / begins"


def test_a_selection_goes_up_to_the_match() -> None:
    mode = begun()
    press(mode, "g", "v", "/", *"two", "enter")
    assert press(mode, "y") == Left("one t")


def test_a_pasted_text_is_searched_for() -> None:
    mode = begun()
    assert not mode.paste("x")
    press(mode, "?")
    assert mode.paste("six\nrm -rf /\n")
    press(mode, "ctrl+a")
    assert mode.bar == "?six"
    mode.paste("x" * 10_000 + "\x1b")
    assert mode.prompt is not None and len(mode.prompt.text) == TEXT_MAX
    press(mode, "ctrl+u", *"ab cd", "ctrl+w")
    assert mode.bar == "?ab"


def test_all_matches_of_a_line_are_known() -> None:
    mode = begun("ab ab ab")
    press(mode, "/", *"ab")
    assert [tuple(span.start) for span in mode.matches_on(0)] == [(0, 0), (0, 3), (0, 6)]
    assert mode.matches_on(1) == []


# Another size


def test_with_other_lines_the_selection_is_gone_and_the_search_is_not() -> None:
    terminal = Terminal(20, 4)
    terminal.feed(TEXT.replace("\n", "\r\n").encode())
    mode = CopyMode(terminal.freeze(), height=4, cursor=Position(6, 0))
    press(mode, "?", *"six", "enter", "v")
    terminal.resize(8, 4)
    mode.thaw(terminal.freeze())
    assert mode.selection is None
    press(mode, "N")
    assert mode.lines.text(mode.cursor.line) == "six"


def test_another_height_keeps_the_selection() -> None:
    mode = begun()
    press(mode, "g", "v", "e")
    mode.resize(2)
    assert (mode.top, mode.cursor) == (0, (0, 2))
    assert press(mode, "y") == Left("one")


def test_output_changes_nothing_of_what_is_looked_at() -> None:
    terminal = Terminal(20, 4)
    terminal.feed(TEXT.replace("\n", "\r\n").encode())
    mode = CopyMode(terminal.freeze(), height=4, cursor=Position(6, 0))
    press(mode, "g", "v", "G", "$")
    terminal.feed(b"\x1b[3J\x1b[2J\x1b[H\x1bc" + b"other\r\n" * 20_000 + b"\x1b[?1049h")
    assert press(mode, "y") == Left(TEXT)


KEYS = st.sampled_from(
    [
        *"hjklwbe0^$gGHML{}[]vVoyYnN/?q123 ",
        *("ctrl+u", "ctrl+d", "ctrl+b", "ctrl+f", "ctrl+y", "ctrl+e", "ctrl+v"),
        *("enter", "escape", "backspace", "pageup", "f5", "a", "你"),
    ]
)


@settings(max_examples=examples(150))
@given(
    data=OUTPUT,
    keys=st.lists(KEYS, max_size=25),
    size=st.tuples(st.integers(2, 12), st.integers(1, 6)),
    resized=st.tuples(st.integers(2, 12), st.integers(1, 6)),
)
def test_any_keys_on_any_output_keep_the_cursor_in_the_view(
    data: bytes, keys: list[str], size: tuple[int, int], resized: tuple[int, int]
) -> None:
    terminal = Terminal(*size, scrollback=10)
    terminal.feed(data)
    cursor = Position(terminal.cursor.line, terminal.cursor.x)
    mode = CopyMode(terminal.freeze(), height=terminal.rows, cursor=cursor)
    for number, key in enumerate(keys):
        if press(mode, key) is not None:
            return
        if number == 10:
            terminal.resize(*resized)
            mode.resize(terminal.rows)
            mode.thaw(terminal.freeze())
        assert mode.lines.first_line <= mode.top <= mode.cursor.line < mode.top + mode.height
        assert mode.cursor.line < mode.lines.end_line
        assert 0 <= mode.cursor.x < mode.lines.columns
        for line in range(mode.top, mode.top + mode.height):
            mode.matches_on(line)
            if mode.selection is not None:
                mode.selection.columns(line)
        assert mode.told

"""Which lines differ between two texts."""

from __future__ import annotations

import random
import time

from quicksand_disks.comparing.lines import Steps, compare_lines, hunks, split

from tests.each import each


def rebuilt(a: list[bytes], b: list[bytes]) -> list[bytes]:
    """``b``, made of ``a`` and what is said to differ."""
    made: list[bytes] = []
    at = 0
    for region in compare_lines(a, b):
        made += [*a[at : region.a], *b[region.b : region.b_end]]
        at = region.a_end
    return made + a[at:]


@each("seed", range(40))
def test_the_second_text_is_the_first_with_the_changes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        a, b = ([b"%d\n" % rng.randrange(4) for _ in range(rng.randrange(40))] for _ in "ab")
        assert rebuilt(a, b) == b


def test_a_changed_line_is_one_change_with_its_neighbours() -> None:
    a = split(b"".join(b"%d\n" % n for n in range(20)))
    b = [*a[:10], b"ten\n", *a[11:]]
    (hunk,) = hunks(a, b, compare_lines(a, b))
    assert hunk.head == "@@ -8,7 +8,7 @@"
    assert [sign for sign, _ in hunk.lines] == [" ", " ", " ", "-", "+", " ", " ", " "]


def test_a_shortest_way_is_found() -> None:
    a, b = (list(map(bytes, ([c] for c in text))) for text in (b"abcabba", b"cbabac"))
    changed = sum(r.a_end - r.a + r.b_end - r.b for r in compare_lines(a, b))
    assert changed == 5  # the example of Myers' paper


def test_texts_made_to_take_long_are_given_up_within_seconds() -> None:
    rng = random.Random(1)
    a, b = ([b"%d\n" % rng.randrange(2) for _ in range(120_000)] for _ in "ab")
    began = time.process_time()
    assert len(compare_lines(a, b)) == 1
    assert time.process_time() - began < 30


def test_many_pairs_share_their_steps() -> None:
    steps = Steps(1000)
    a, b = [b"%d\n" % n for n in range(200)], [b"%d\n" % n for n in range(200, 400)]
    compare_lines(a, b, steps=steps)
    assert steps.left < 0
    assert compare_lines([b"x", b"1", b"y"], [b"z", b"1", b"w"], steps=steps) == [(0, 3, 0, 3)]


def test_lines_end_only_at_line_feeds() -> None:
    assert split(b"a\rb\x0c\n\nend") == [b"a\rb\x0c\n", b"\n", b"end"]

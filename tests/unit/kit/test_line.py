"""How much is on its way on a line, by a clock that the tests turn."""

from __future__ import annotations

import threading

from quicksand_driver.line_speed import AT_FIRST, FORGOTTEN_S, LOST_S, Line


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowLine:
    """A line that takes so many bytes a second, in pieces."""

    def __init__(self, bytes_per_s: int) -> None:
        self.clock = Clock()
        self.line = Line(self.clock)
        self._bytes_per_s = bytes_per_s

    def carry(self, count: int) -> None:
        while count:
            piece = min(count, 512)
            self.clock.now += piece / self._bytes_per_s
            self.line.wrote(piece, piece / self._bytes_per_s)
            count -= piece


def test_a_fast_line_is_never_busy() -> None:
    clock = Clock()
    line = Line(clock)
    for _ in range(100):
        line.put(8000)
        assert not line.is_busy
        line.wrote(8000, 0.0005)
    assert line.bytes_per_s is None


def test_a_slow_line_is_measured_and_takes_the_next_frame_when_little_is_left() -> None:
    slow = SlowLine(20_000)
    slow.line.put(12_000)
    slow.carry(6_000)
    assert slow.line.is_busy
    assert slow.line.bytes_per_s is not None
    assert 18_000 < slow.line.bytes_per_s < 22_000
    called: list[float] = []
    slow.line.when_free(lambda: called.append(slow.clock.now))
    slow.carry(4_000)
    assert called == []
    slow.carry(1_500)
    assert len(called) == 1
    assert slow.line.on_way <= 20_000 * 0.2
    assert not slow.line.is_busy


def test_what_waits_is_called_once_and_the_newest_only() -> None:
    slow = SlowLine(20_000)
    slow.line.put(20_000)
    called: list[str] = []
    slow.line.when_free(lambda: called.append("old"))
    slow.line.when_free(lambda: called.append("new"))
    slow.carry(20_000)
    assert called == ["new"]
    slow.line.when_free(lambda: called.append("at once"))
    assert called == ["new", "at once"]


def test_a_line_that_got_fast_is_not_held_back() -> None:
    slow = SlowLine(5_000)
    slow.line.put(2_000)
    slow.carry(2_000)
    slow.clock.now += FORGOTTEN_S + 1
    slow.line.put(8_000)
    slow.line.wrote(2_000, 0.0001)
    assert slow.line.bytes_per_s is None
    assert not slow.line.is_busy


def test_beyond_a_network_the_answer_tells_what_has_arrived() -> None:
    clock = Clock()
    line = Line(clock)
    line.put(300)
    line.wrote(300, 0.0)
    line.ask()
    clock.now += 0.1
    line.answer()
    for _ in range(8):
        # 4 kB take 0.2 s at 20 kB/s, and the answer 0.1 s.
        line.put(4_000)
        line.wrote(4_000, 0.0)
        line.ask()
        clock.now += 0.3
        line.answer()
        assert not line.is_busy
    line.put(6_000)
    line.wrote(6_000, 0.0)
    line.ask()
    assert line.is_busy
    called: list[int] = []
    line.when_free(lambda: called.append(1))
    clock.now += 0.4
    line.answer()
    assert called == [1]


def test_an_answer_that_never_comes_holds_nothing_up_for_long() -> None:
    clock = Clock()
    line = Line(clock)
    line.put(2 * AT_FIRST)
    line.wrote(2 * AT_FIRST, 0.0)
    line.ask()
    assert line.is_busy
    clock.now += LOST_S + 0.1
    assert not line.is_busy


def test_after_a_lost_answer_the_next_ones_count() -> None:
    clock = Clock()
    line = Line(clock)
    line.put(500)
    line.ask()
    clock.now += LOST_S + 1
    line.put(3 * AT_FIRST)
    line.wrote(3 * AT_FIRST + 500, 0.0)
    assert line.may_ask
    line.ask()
    assert not line.is_busy
    line.put(3 * AT_FIRST)
    line.wrote(3 * AT_FIRST, 0.0)
    assert line.is_busy
    line.ask()
    line.answer()
    line.answer()
    assert not line.is_busy


def test_two_threads_may_use_it() -> None:
    line = Line()
    over = threading.Event()

    def answers() -> None:
        while not over.is_set():
            line.answer()
            line.wrote(100, 0.0)

    thread = threading.Thread(target=answers)
    thread.start()
    try:
        for _ in range(20_000):
            line.put(100)
            if line.may_ask:
                line.ask()
            line.when_free(lambda: None)
    finally:
        over.set()
        thread.join()
    assert line.on_way >= 0


def test_there_are_never_more_than_a_few_questions() -> None:
    line = Line(Clock())
    asked = 0
    while line.may_ask:
        line.ask()
        asked += 1
    assert asked < 10
    line.answer()
    assert line.may_ask

"""What a run says on no terminal: lines in time, with counts, and none after the end."""

from __future__ import annotations

import threading

import pytest

from fedmia.records.note import Note
from fedmia.report.words.notes import in_words
from fedmia.runtime.progress import AuditDisplay, Display, ProgressBars, StudyDisplay, TimeLeft

Capture = pytest.CaptureFixture[str]


class Quick(ProgressBars):
    """Beats when it is waited for, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due, self._done = threading.Semaphore(0), threading.Semaphore(0)
        super().__init__(False, interval=0.001, clock=lambda: self.now)
        self.task = self._bar.add_task("rounds", total=10, seen="")

    def beat(self) -> None:
        if self._due.acquire(blocking=False):
            super().beat()
            self._done.release()

    def wait_for_beat(self) -> None:
        self._due.release()
        self._done.acquire()


def beating_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_beating__before_the_bars_in_them_and_after_them_with_one_clock(capsys: Capture) -> None:
    display = Quick()
    with display.beating():
        assert beating_threads()
        display.now = 5.0
        display.wait_for_beat()
        with display:
            display._bar.update(display.task, completed=4)
            display.wait_for_beat()
            display.now = 40.0
            display.wait_for_beat()
        for display.now in (90.0, 7500.0):
            display.wait_for_beat()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fedmia: data, 5 s elapsed"
    assert lines[1].startswith("fedmia: rounds 4/10, 5 s elapsed")
    assert lines[2] == "fedmia: rounds 4/10, 40 s elapsed, about 1 min 0 s left"
    last = [f"fedmia: report, {time} elapsed" for time in ("1 min 30 s", "2 h 5 min")]
    assert lines[3:] == last
    assert not beating_threads()


def test_quiet__says_nothing(capsys: Capture) -> None:
    with AuditDisplay(2, True, in_words) as display:
        assert not beating_threads()
        display.show_step("released", "lpla", False)
        display.line("x")
    assert capsys.readouterr() == ("", "")


def test_attacks__with_their_number(capsys: Capture) -> None:
    with AuditDisplay(12, False, in_words) as display:
        assert display.state().startswith("attacks 0/12,")
        display.plan(2, 2)
        display.show_step("released", "lpla", False)
        display.show_step("released", "lpla", True)
        display.show_step("released", "similarity", False)
        assert "attacks 1/4, now similarity on the released encoder" in display.state()
        display.note(Note("no-labels"))
    assert "fedmia: attack 2 of 4: similarity on the released encoder" in capsys.readouterr().err


def test_resumed__rounds_of_an_earlier_process_do_not_count_as_fast(capsys: Capture) -> None:
    display = Display(10, False)
    now = 0.0
    display._clock = display._bar.get_time = lambda: now
    display._bar.tasks[0]._get_time = lambda: now
    display._bar.tasks[0].start_time = 0.0
    with display:
        display.skip(8)
        now = 60.0
        display.round("main", 9, 5.0, None, 60.0)
        assert (
            display.state()
            == "main rounds 9/10, loss 5.000, 1 min 0 s elapsed, about 1 min 0 s left"
        )
        display.round("main", 10, 5.0, None, 60.0)
        display.begin_scoring(2)
        display.scoring("pixels", False)
        assert display.state().startswith("attacks and controls 0/2, pixels, ")


def test_estimate__is_said_once_as_soon_as_ten_seconds_of_rounds_tell_it(capsys: Capture) -> None:
    display = Display(0, False)
    display.plan(5)
    display._clock = lambda: now
    display._bar.tasks[0]._get_time = lambda: now
    display._bar.tasks[0].start_time = 0.0
    for now in (14.0, 24.0, 34.0):  # the first client waits for imports, and does not count
        display.reply(0.1, 10)
        said = capsys.readouterr().err
        wanted = "fedmia: the rounds take about 8 min 0 s more, then come the attacks\n"
        assert said == (wanted if now == 24.0 else "")


def test_time_left__on_a_terminal_is_that_of_the_line(capsys: Capture) -> None:
    """Also of rounds of a minute, of which rich would forget each before the next."""
    display, now = Display(10, False), 0.0
    task = display._bar.tasks[0]
    display._clock = task._get_time = lambda: now
    task.start_time = 0.0
    with display:
        assert TimeLeft(False).render(task).plain == "-:--:--"
        for done in (1, 2):
            now = 60.0 * done
            display.round("main", done, 5.0, None, 60.0)
        assert TimeLeft(False).render(task).plain == "0:08:00"
        assert display.state().endswith(", about 8 min 0 s left")


def test_time_left__of_runs_side_by_side_follows_from_those_that_ended(capsys: Capture) -> None:
    """Two at once, 60 s each: the third and the fourth begin at once, the fifth is alone."""
    display, now = StudyDisplay(5, False), 0.0
    task = display._bar.tasks[0]
    display._clock = task._get_time = lambda: now
    task.start_time = 0.0
    with display:
        display.began("a")
        display.began("b")
        now = 60.0
        display.ended("a", None)
        display.began("c")
        assert display.state().endswith("1 min 0 s elapsed, about 2 min 0 s left")
        display.ended("b", None)
        display.began("d")
        now = 80.0
        assert display.state().endswith(", about 1 min 40 s left")

"""Progress on standard error: one live line on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from setpoint.cli.output import stderr
from setpoint.engines.supervisor import Loading
from setpoint.load.progress import Phase, Progress
from setpoint.units import format_duration, format_number

PLAIN_EVERY_S = 5.0


class Reporter:
    """Shows notes, engine starts and runs while they go. A context manager.

    Args:
        quiet: Show nothing but notes.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = stderr()
        self._quiet = quiet
        self._live: Live | None = None
        self._last_plain_s = 0.0
        self._last_phase: Phase | None = None
        self._begun_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(Text(""), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, sentence: object) -> None:
        """A sentence that stays."""
        elapsed = format_clock(time.monotonic() - self._begun_s)
        self._console.print(Text(f"{elapsed}  {sentence}"), soft_wrap=True)

    def loading(self, moment: Loading) -> None:
        """An engine's start."""
        stage = "waiting for its first token" if moment.listening else "loading"
        last = moment.last_line[-80:]
        self._show(f"engine {stage}, {moment.elapsed_s:.0f} s  {last}", moment.elapsed_s > 1.0)

    def run(self, moment: Progress) -> None:
        """A run."""
        changed = moment.phase is not self._last_phase and moment.phase in (Phase.WARM_UP, Phase.DRAIN)
        self._last_phase = moment.phase
        self._show(run_line(moment), changed and self._live is None and moment.phase is Phase.WARM_UP)

    def asked(self, done: int, planned: int) -> None:
        """Answers to a suite."""
        self._show(f"{done} of {planned} answers", done == 1)

    def _show(self, line: str, worth_a_line: bool) -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
            return
        now = time.monotonic()
        if now - self._last_plain_s >= PLAIN_EVERY_S or (worth_a_line and now - self._last_plain_s > 1.0):
            self._last_plain_s = now
            self._console.print(Text(f"{format_clock(now - self._begun_s)}  {line}"), soft_wrap=True)


def format_clock(seconds: float) -> str:
    """Minutes and seconds since the start: ``1:05``."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def run_line(moment: Progress) -> str:
    """One line about a run, the most telling first: it is cut at the terminal's width."""
    if moment.phase in (Phase.PREPARE, Phase.WARM_UP, Phase.WRITE):
        return f"{moment.label}: {moment.note or moment.phase}"
    done = sum(moment.outcomes.values())
    bad = sum(n for outcome, n in moment.outcomes.items() if not outcome.answered)
    left_s = max(moment.planned_s - moment.elapsed_s, 0.0)
    parts = [
        f"{moment.label}",
        f"{left_s:.0f} s left" if moment.phase is Phase.MEASURE else "waiting for answers",
        f"{moment.in_flight} in flight",
        f"{done} done" + (f", {bad} failed" if bad else ""),
    ]
    if moment.ttft_s is not None:
        p50, p95 = moment.ttft_s
        parts.append(f"TTFT p50 {format_duration(p50)} p95 {format_duration(p95)}")
    if moment.gap_s is not None:
        parts.append(f"longest gap {format_duration(moment.gap_s)}")
    if moment.rate_per_s:
        parts.append(f"{format_number(moment.rate_per_s)} answers/s")
    return " · ".join(parts)

"""A small chart maker: lines, marks, bars and axes as inline SVG, coloured by the page's own style."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 42
EDGE = 26  # half of the widest label below the axis
Point = tuple[float, float]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    base = 10 ** math.floor(math.log10(raw))
    step = next(m * base for m in (1, 2, 2.5, 5, 10) if m * base >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within a range; powers alone where that is many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) <= 4 else (1,)
    return [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]


@dataclass
class Chart:
    """One picture with an x and a y axis.

    Attributes:
        title: For screen readers.
        x: Range of x.
        y: Range of y.
        x_label: With unit.
        y_label: With unit.
        log_x: Logarithmic x axis.
        x_text: Text of an x tick.
        y_text: Text of a y tick.
        height: Of the picture.
    """

    title: str
    x: Point
    y: Point
    x_label: str
    y_label: str
    log_x: bool = False
    x_text: Callable[[float], str] = "{:g}".format
    y_text: Callable[[float], str] = "{:g}".format
    height: int = HEIGHT
    _body: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)

    def px(self, value: float) -> float:
        """Horizontal position."""
        low, high = self.x
        if self.log_x:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def py(self, value: float) -> float:
        """Vertical position."""
        low, high = self.y
        share = (value - low) / (high - low) if high > low else 0.5
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)

    def line(self, points: Iterable[Point | None], css: str, *, name: str = "", step: bool = False) -> None:
        """A line; None breaks it."""
        path, pen, last = [], "M", None
        for point in points:
            if point is None:
                pen, last = "M", None
                continue
            x, y = self.px(point[0]), self.py(point[1])
            if step and last is not None:
                path.append(f"L{x:.1f} {last:.1f}")
            path.append(f"{pen}{x:.1f} {y:.1f}")
            pen, last = "L", y
        self._body.append(f'<path class="line {css}" d="{"".join(path)}"/>')
        if name:
            self._legend.append((css, name))

    def mark(self, at: Point, css: str, tip: str, shape: str = "circle") -> None:
        """A mark with a tooltip: circle, square or diamond."""
        x, y = self.px(at[0]), self.py(at[1])
        title = f"<title>{escape(tip)}</title>"
        if shape == "circle":
            self._body.append(f'<circle class="mark {css}" cx="{x:.1f}" cy="{y:.1f}" r="5">{title}</circle>')
        elif shape == "square":
            self._body.append(
                f'<rect class="mark {css}" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9">{title}</rect>'
            )
        else:
            points = f"{x:.1f},{y - 6:.1f} {x + 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f} {x - 6:.1f},{y:.1f}"
            self._body.append(f'<polygon class="mark {css}" points="{points}">{title}</polygon>')

    def bar(self, x: Point, y: Point, css: str, tip: str = "") -> None:
        """A rectangle between two x and two y values."""
        left, right, top, bottom = self.px(x[0]), self.px(x[1]), self.py(y[1]), self.py(y[0])
        title = f"<title>{escape(tip)}</title>" if tip else ""
        box = f'x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.6):.1f}" height="{max(bottom - top, 0.6):.1f}"'
        self._body.append(f'<rect class="{css}" {box}>{title}</rect>')

    def text(self, at: Point, words: str) -> None:
        """Words that begin at a point."""
        self._body.append(
            f'<text class="note" x="{self.px(at[0]):.1f}" y="{self.py(at[1]):.1f}">{escape(words)}</text>'
        )

    def vertical(self, value: float, css: str, label: str) -> None:
        """A limit on the x axis."""
        if self.x[0] <= value <= self.x[1]:
            x = self.px(value)
            anchor = "end" if x > WIDTH * 0.75 else "start"
            shift = -4 if anchor == "end" else 4
            self._body.append(
                f'<line class="limit {css}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{self.height - BOTTOM}"/>'
            )
            self._body.append(
                f'<text class="note" x="{x + shift:.1f}" y="{TOP + 12}" text-anchor="{anchor}">{escape(label)}</text>'
            )

    def horizontal(self, value: float, css: str, label: str) -> None:
        """A limit on the y axis."""
        if self.y[0] <= value <= self.y[1]:
            y = self.py(value)
            self._body.append(f'<line class="limit {css}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self._body.append(f'<text class="note" x="{LEFT + 4}" y="{y - 4:.1f}">{escape(label)}</text>')

    def legend(self, css: str, name: str) -> None:
        """A legend entry without a line of its own."""
        self._legend.append((css, name))

    def render(self) -> str:
        """The picture."""
        bottom = self.height - BOTTOM
        out = [f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self.title)}">']
        ticks = log_ticks(*self.x) if self.log_x else nice_ticks(*self.x)
        for tick in ticks:
            x = self.px(tick)
            out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
            out.append(
                f'<text class="tick" x="{min(x, WIDTH - EDGE):.1f}" y="{bottom + 15}" text-anchor="middle">'
                f"{escape(self.x_text(tick))}</text>"
            )
        for tick in nice_ticks(*self.y):
            y = self.py(tick)
            out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            out.append(
                f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(self.y_text(tick))}</text>'
            )
        out.append(
            f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{self.height - 6}" text-anchor="middle">{escape(self.x_label)}</text>'
        )
        out.append(
            f'<text class="axis" transform="translate(13 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(self.y_label)}</text>'
        )
        out += self._body
        out.append("</svg>")
        return "".join(out) + self._render_legend()

    def _render_legend(self) -> str:
        if not self._legend:
            return ""
        items = "".join(f'<span><i class="key {css}"></i>{escape(name)}</span>' for css, name in self._legend)
        return f'<div class="legend">{items}</div>'


def covering(values: Sequence[float], *, from_zero: bool = False, pad: float = 0.06) -> Point:
    """A range that holds all values with some room."""
    if not values:
        return (0.0, 1.0)
    low, high = (0.0 if from_zero else min(values)), max(values)
    room = (high - low) * pad or max(abs(high), 1.0) * pad
    return (low if from_zero else low - room, high + room)

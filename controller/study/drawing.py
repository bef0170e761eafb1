"""Draws the plots of a study as a paper shows them, by Matplotlib (the extra ``study``): PNG, SVG and PDF.

Lines differ by dashes and markers, bars by hatching, and the greys of neighbouring colours by a fifth of the whole
range at least, so that a print without colours can be read. The same plot gives the same bytes with the same
Matplotlib, whatever the user's own settings of it are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .framework import AnyPlot, Bars, Cdf, Plot, StudyError

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#000000", "#e08214", "#2166ac", "#d9b300", "#8b0a1a", "#6baed6", "#1b6b3a", "#bdbdbd")
"""Neighbours differ by 20 or more in lightness (CIE L*, 0 to 100)."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (8, 2, 2, 2)), (0, (3, 3)))
MARKERS = ("o", "s", "^", "D", "v", "x", "P", "*", "<", ">")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "ooo", "--")
_SIZE_INCHES = (6.0, 3.8)
_LEGEND_INSIDE = 6
_LEGEND_ROW_INCHES = 0.2
_FEW_POINTS = 40
_DPI = 160
_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "font.size": 9.0,
    "hatch.linewidth": 0.6,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    # Letters stay letters in the PDF, as journals ask for.
    "pdf.fonttype": 42,
    # Names within an SVG follow from what it shows, instead of from chance.
    "svg.hashsalt": "hyroads",
}
# Without dates the same plot gives the same bytes.
_METADATA = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def need_matplotlib() -> None:
    """Raises ``StudyError`` if plots can't be drawn; asked before a study runs, not after minutes of work."""
    if find_spec("matplotlib") is None:
        raise StudyError("plots need Matplotlib: pip install 'hyroads[study]', or give --no-plots")


def draw(plot: AnyPlot) -> dict[str, bytes]:
    """The files of a plot, by their suffix (``SUFFIXES``)."""
    need_matplotlib()
    with _style():
        figure = figure_of(plot)
        files = {}
        for suffix in SUFFIXES:
            file = io.BytesIO()
            figure.savefig(file, format=suffix[1:], dpi=_DPI, metadata=_METADATA[suffix])
            files[suffix] = file.getvalue()
    return files


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, _STYLE))
        yield


def figure_of(plot: AnyPlot) -> Any:
    """A Matplotlib figure, for those who want to change something before they write it."""
    # The figure is made without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    match plot:
        case Plot():
            _draw_lines(plot, axes)
        case Cdf():
            _draw_cdf(plot, axes)
        case Bars():
            _draw_bars(plot, axes)
    axes.set(title=_plain(plot.title))
    axes.set_axisbelow(True)
    axes.grid(color="0.88", linewidth=0.6)
    _legend(figure, axes)
    return figure


def _plain(label: str) -> str:
    """A dollar in a label is a dollar, and begins no formula."""
    return label.replace("$", r"\$")


def _legend(figure: Any, axes: Any) -> None:
    """Within the axes if it is short, else below them."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    if len(labels) <= _LEGEND_INSIDE:
        axes.legend(loc="best", handlelength=3.0)
        return
    columns = 3 if max(map(len, labels)) <= 24 else 2
    rows = -(-len(labels) // columns)
    width, height = _SIZE_INCHES
    figure.set_size_inches(width, height + rows * _LEGEND_ROW_INCHES)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.0)


def _look(number: int) -> dict[str, Any]:
    """How the line of that number looks, from 0."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markerfacecolor": "white",
        "markeredgewidth": 0.9,
    }


def _mark_every(number: int, points: int) -> Any:
    """All points if they are few; else eight of them, at other places for each line."""
    if points <= _FEW_POINTS:
        return 1
    step = points // 8
    return (number * step // 5 % step, step)


def _draw_lines(plot: Plot, axes: Any) -> None:
    for number, (label, values) in enumerate(plot.lines.items()):
        look = _look(number)
        axes.plot(plot.x, values, label=_plain(label), zorder=3, markevery=_mark_every(number, len(plot.x)), **look)
        if label not in plot.bands:
            continue
        low, high = plot.bands[label]
        if len(plot.x) <= _FEW_POINTS:
            ends = np.maximum(np.array([values - low, high - values]), 0.0)
            axes.errorbar(plot.x, values, ends, fmt="none", ecolor=look["color"], elinewidth=0.9, capsize=2.5)
        else:
            axes.fill_between(plot.x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    _horizontal_marks(plot.marks, axes)
    _logarithmic(axes, plot.logarithmic, plot.logarithmic_y)
    axes.set(xlabel=_plain(plot.x_label), ylabel=_plain(plot.y_label))
    axes.margins(x=0.02 if len(plot.x) <= _FEW_POINTS else 0.0)


def _draw_cdf(plot: Cdf, axes: Any) -> None:
    for number, (label, values) in enumerate(plot.samples.items()):
        x, share = steps_of(values)
        finite = np.isfinite(x)
        x, share = x[finite], share[finite]
        if len(x):
            # From zero upwards at the smallest value.
            x, share = np.concatenate([x[:1], x]), np.concatenate([[0.0], share])
        every = _mark_every(number, max(len(x), _FEW_POINTS + 1))
        axes.step(x, share, where="post", label=_plain(label), zorder=3, markevery=every, **_look(number))
    for at, text in plot.marks:
        axes.axvline(at, color="0.5", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.annotate(
            _plain(text), (at, 0.01), xycoords=("data", "axes fraction"), rotation=90, va="bottom", color="0.35"
        )
    _logarithmic(axes, plot.logarithmic, False)
    axes.set(xlabel=_plain(plot.x_label), ylabel="cumulative share", ylim=(0.0, 1.01))


def _draw_bars(plot: Bars, axes: Any) -> None:
    width = 0.8 / max(1, len(plot.bars))
    middle = np.arange(len(plot.groups), dtype=np.float64)
    for number, (label, heights) in enumerate(plot.bars.items()):
        at = middle + (number - (len(plot.bars) - 1) / 2) * width
        ends = plot.intervals.get(label)
        errors = None if ends is None else np.maximum(np.array([heights - ends[0], ends[1] - heights]), 0.0)
        # The darkest colour of lines would hide hatching and the ends of intervals.
        colour = COLOURS[(number + 1) % len(COLOURS)]
        axes.bar(
            at,
            heights,
            width,
            label=_plain(label),
            yerr=errors,
            error_kw={"elinewidth": 0.9, "capsize": 2.5, "ecolor": "black"},
            color=colour,
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="black",
            linewidth=0.6,
            zorder=2,
        )
    _horizontal_marks(plot.marks, axes)
    # A mask would leave out the foot of each bar, at 0, and with it the whole body.
    _logarithmic(axes, False, plot.logarithmic and any((each > 0).any() for each in plot.bars.values()), "clip")
    axes.set(xlabel=_plain(plot.x_label), ylabel=_plain(plot.y_label))
    crowded = sum(map(len, plot.groups)) > 70
    axes.set_xticks(
        middle,
        [_plain(group) for group in plot.groups],
        rotation=30 if crowded else 0,
        ha="right" if crowded else "center",
    )


def _logarithmic(axes: Any, x: bool, y: bool, nonpositive: str = "mask") -> None:
    """Values of lines that a logarithmic axis can't show leave a gap; bars are clipped, since they begin at 0."""
    if x:
        axes.set_xscale("log", nonpositive=nonpositive)
    if y:
        axes.set_yscale("log", nonpositive=nonpositive)


def _horizontal_marks(marks: Iterable[tuple[float, str]], axes: Any) -> None:
    for height, text in marks:
        axes.axhline(height, color="0.5", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.annotate(
            _plain(text), (0.01, height), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.35"
        )


def steps_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sorted values without NaN, float64[n], and the share of all that is at most as large, float64[n]."""
    known = np.sort(values[~np.isnan(values)])
    return known, np.arange(1, len(known) + 1) / max(1, len(known))

"""Draws the plots of a study with Matplotlib, which is optional (the extra ``study``)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from hyroads.controller.study.framework import Plot, StudyError

PLOT_SUFFIXES = (".png", ".svg")
_SIZE_INCHES = (8.0, 4.5)
_DPI = 140


def need_matplotlib() -> None:
    """Raises ``StudyError`` if plots can't be drawn; asked before a study runs, not after minutes of work."""
    if find_spec("matplotlib") is None:
        raise StudyError("plots need Matplotlib: pip install 'hyroads[study]', or give --no-plots")


def draw(plot: Plot, folder: Path) -> list[Path]:
    """Draw ``plot`` into ``folder`` as PNG and SVG."""
    need_matplotlib()
    # The figure is made without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    for number, (label, values) in enumerate(plot.lines.items()):
        axes.plot(plot.x, values, label=label, linewidth=1.2, color=f"C{number % 10}", zorder=3)
    for height, text in plot.marks:
        axes.axhline(height, color="0.6", linewidth=0.8, linestyle="--")
        axes.annotate(text, (0.01, height), xycoords=("axes fraction", "data"), ha="left", va="bottom", color="0.4")
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.margins(x=0)
    axes.grid(alpha=0.25)
    axes.legend(fontsize="small", loc="lower right")
    files = [folder / f"{plot.name}{suffix}" for suffix in PLOT_SUFFIXES]
    for path in files:
        # Without a date the same study gives the same files.
        figure.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files

"""Plots of a demo with Matplotlib, which is optional (the extra ``study``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hyroads.mininet.demos.settling import FloatArray

SUFFIXES = (".png", ".svg")
_SIZE_INCHES = (9.0, 3.2)
_DPI = 130


@dataclass(frozen=True)
class Panel:
    """A diagram over time: measured ``lines`` (label -> times, values), and ``theory`` as steps of the same colour.

    ``theory`` maps a label to (from, to, value) spans.
    """

    title: str
    y_label: str
    lines: Mapping[str, tuple[FloatArray, FloatArray]]
    theory: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


def can_draw() -> bool:
    """Whether Matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw(folder: Path, name: str, panels: Sequence[Panel], marks: Mapping[float, str]) -> list[Path]:
    """Draws the panels one above the other, as PNG and SVG; ``marks`` are moments with their words."""
    # Without pyplot: no global state, no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for number, (panel, where) in enumerate(zip(panels, axes, strict=True)):
        _draw_panel(where, panel)
        for time_s, words in marks.items():
            where.axvline(time_s, color="0.7", linewidth=0.8, linestyle=":")
            if number == 0:
                where.annotate(words, (time_s, 1.0), xycoords=("data", "axes fraction"), fontsize="x-small",
                               rotation=20, ha="left", va="bottom", color="0.35")  # fmt: skip
    axes[-1].set_xlabel("time (s)")
    files = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    for path in files:
        figure.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files


def _draw_panel(where: Any, panel: Panel) -> None:
    for number, (label, (times_s, values)) in enumerate(panel.lines.items()):
        colour = f"C{number % 10}"
        where.plot(times_s, values, label=label, linewidth=1.2, color=colour)
        for index, (from_s, to_s, value) in enumerate(panel.theory.get(label, ())):
            words = "theory" if number == 0 and index == 0 else None
            where.hlines(value, from_s, to_s, colour, linestyles="--", linewidth=1.0, label=words)
    where.set(ylabel=panel.y_label)
    where.set_title(panel.title, loc="left", fontsize="medium", pad=22 if panel.theory else 6)
    where.set_ylim(bottom=0)
    where.margins(x=0)
    where.grid(alpha=0.25)
    where.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))

"""What studies draw and write: the same bytes each time, plots that a print without colours shows, whole files."""

from __future__ import annotations

import csv
import io
import itertools
import math
from dataclasses import replace
from pathlib import Path

import matplotlib.image as plt_image
import numpy as np
import pytest

from hyroads.controller.study.drawing import COLOURS, DASHES, MARKERS, SUFFIXES, draw, figure_of
from hyroads.controller.study.framework import Bars, Cdf, Plot, Result, StudyError, Table
from hyroads.controller.study.report import Origin, markdown, writable, write
from hyroads.controller.study.verdicts import Check, Kind, about, at_most

X = np.array([1.0, 2.0, 4.0])
LINES = Plot("lines", "Lines", "n", "rate", X, {"a": X, "b": X**2}, True, ((3.0, "a mark"),), True)
WITH_ENDS = replace(LINES, bands={"a": np.array([X - 0.5, X + 1.0])})
CDF = Cdf("cdf", "CDF", "Mb/s", {"a": np.array([3.0, 1.0, math.inf, math.nan]), "b": np.array([2.0])})
BARS = Bars(
    "bars", "Bars", "case", "Mb/s", ("x", "y"), {"a": X[:2], "b": X[1:]}, {"b": np.array([[1.0, 3.0], [3.0, 9.0]])}
)


def lightness(colour: str) -> float:
    """CIE L* of a colour as #rrggbb."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    y = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_neighbouring_colours_differ_in_grey_and_no_two_lines_look_alike() -> None:
    for one, other in itertools.pairwise(map(lightness, COLOURS)):
        assert abs(one - other) >= 20
    looks = [(DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)]) for i in range(24)]
    assert len(set(map(str, looks))) == 24


def test_lines_have_dashes_error_bars_and_logarithmic_axes() -> None:
    axes = figure_of(WITH_ENDS).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["a"].get_linestyle() != lines["b"].get_linestyle()
    assert lines["a"].get_marker() != lines["b"].get_marker()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    [errors] = axes.containers
    assert [segment[:, 1].tolist() for segment in errors[2][0].get_segments()] == [[0.5, 2.0], [1.5, 3.0], [3.5, 5.0]]


def test_a_distribution_rises_from_zero_and_counts_infinite_values() -> None:
    axes = figure_of(CDF).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "a")
    assert line.get_xydata().tolist() == [[1.0, 0.0], [1.0, 1 / 3], [3.0, 2 / 3]]


def test_bars_stand_side_by_side_with_the_ends_of_their_intervals() -> None:
    axes = figure_of(BARS).axes[0]
    patches = [patch for patch in axes.patches if patch.get_height() > 0]
    assert [patch.get_height() for patch in patches] == [1.0, 2.0, 2.0, 4.0]
    assert patches[0].get_x() < patches[2].get_x() < patches[1].get_x()
    assert patches[0].get_hatch() != patches[2].get_hatch()
    [errors] = [each for each in axes.containers if hasattr(each, "has_yerr") and each.has_yerr]
    assert [segment[:, 1].tolist() for segment in errors[2][0].get_segments()] == [[1.0, 3.0], [3.0, 9.0]]


def pixels_of(png: bytes, colour: str) -> int:
    """Pixels of a PNG file that have nearly this colour."""
    image = np.asarray(plt_image.imread(io.BytesIO(png)))[:, :, :3]
    wanted = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return int((np.abs(image - wanted).max(axis=2) < 0.05).sum())


@pytest.mark.parametrize("logarithmic", [False, True])
def test_bars_have_a_body_in_the_drawn_picture(logarithmic: bool) -> None:
    bars = Bars("b", "Bars", "case", "trials", ("x", "y"), {"a": np.array([10.0, 100.0])}, logarithmic=logarithmic)
    png = draw(bars)[".png"]
    # Outlines and the legend alone have fewer than 2,000 pixels of this colour.
    assert pixels_of(png, COLOURS[1]) > 20_000


def test_many_lines_have_their_legend_below() -> None:
    many = replace(LINES, lines={f"line {i}": X + i for i in range(9)})
    figure = figure_of(many)
    assert figure.axes[0].get_legend() is None and len(figure.legends[0].get_texts()) == 9


@pytest.fixture(scope="module")
def drawn_before() -> None:
    """The first drawing reads fonts and loads what writes each format."""
    draw(replace(LINES, lines={"$x_1$": X}))


@pytest.mark.usefixtures("drawn_before")
@pytest.mark.parametrize(
    "plot",
    [
        WITH_ENDS,
        CDF,
        BARS,
        replace(LINES, lines={"$x_1$ and $": X * math.nan, "0": X * 0}),
        Cdf("none", "None", "x", {"a": np.array([]), "b": np.array([math.nan, math.inf])}, True),
        replace(BARS, bars={"a": np.array([0.0, math.nan])}, intervals={}, logarithmic=True),
    ],
)
def test_anything_can_be_drawn_and_gives_the_same_bytes(plot) -> None:
    one, other = draw(plot), draw(plot)
    assert tuple(one) == SUFFIXES and one == other
    assert one[".png"].startswith(b"\x89PNG") and b"<svg" in one[".svg"] and one[".pdf"].startswith(b"%PDF")
    assert b"CreationDate" not in one[".pdf"] and b"<dc:date>" not in one[".svg"]


RESULT = Result(
    "Title",
    "Setting.",
    [Table("summary", "A table", ("name", "n"), (("x|y", 1), ("z", None)))],
    [BARS],
    [
        Check("a rate", about(1.0), 0.987, (0.95, 1.02), Kind.PUBLISHED, "1.0"),
        Check("trials", at_most(3), 7, why="the noise is larger"),
    ],
    ["Note."],
)


def test_the_report_sets_published_beside_ours() -> None:
    text = markdown(RESULT, False, Origin("hyroads study x --seed 1", "thesis, Figure 1"))
    assert "| a rate | 1.0 | 0.987 (0.950 to 1.020) | published | 1 within 5 % | met |" in text
    assert "| trials | - | 7 | reference | at most 3 | **missed** |" in text
    assert "published: 1 of 1 met, 0 missed, 0 undecided; our reference: 0 of 1 met, 1 missed, 0 undecided" in text
    assert "- trials: the noise is larger" in text and "Made by `hyroads study x --seed 1`." in text
    assert "Repeats: thesis, Figure 1." in text and "| x\\|y | 1 |" in text


def test_checks_and_ends_of_intervals_are_in_csv_files(tmp_path: Path) -> None:
    write(RESULT, tmp_path, plots=False)
    checks = list(csv.DictReader((tmp_path / "checks.csv").open()))
    assert [(c["ours"], c["from"], c["to"], c["kind"], c["verdict"]) for c in checks] == [
        ("0.987", "0.95", "1.02", "published", "met"),
        ("7", "", "", "reference", "missed"),
    ]
    assert (tmp_path / "bars.csv").read_text().splitlines() == [
        'case,a,b,"b, from","b, to"', "x,1.0,2.0,1.0,3.0", "y,2.0,4.0,3.0,9.0",
    ]  # fmt: skip
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_folder_that_is_none_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="file/x: Not a directory"):
        writable(tmp_path / "file" / "x")
    with pytest.raises(StudyError, match="/proc"):
        writable(Path("/proc/hyroads"))

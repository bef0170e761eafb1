"""The gallery of the documentation: what the folders of carried-out studies have, or how to make them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hyroads.controller.study.framework import Plot, Result
from hyroads.controller.study.report import Origin, write
from hyroads.controller.study.verdicts import Check, Kind, about

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
docs_site = pytest.importorskip("docs_site")


def test_without_studies_it_says_how_to_make_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(docs_site, "GALLERY_FOLDER", tmp_path)
    assert "make gallery" in docs_site.on_page_markdown(docs_site.GALLERY)


def test_plots_command_and_checks_of_each_study(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(docs_site, "GALLERY_FOLDER", tmp_path)
    plot = Plot("p", "A plot", "x", "y", np.array([1.0, 2.0]), {"a": np.array([1.0, 3.0])})
    missed = Check("a rate", about(1.0), 0.9, (0.88, 0.92), Kind.PUBLISHED, "1.0", "noise")
    open_ = Check("a share", about(1.0), 0.9, (0.8, 1.1), Kind.PUBLISHED, "1.0", "few runs")
    met = Check("a ratio", about(1.0), 1.0, (0.99, 1.01), Kind.PUBLISHED, "1.0", "luck")
    result = Result("Title", "Setting.", [], [plot], [missed, open_, met], ["Note."])
    write(result, tmp_path / "fairness", True, Origin("hyroads study fairness --quick --seed 1", "thesis, Figure 1"))
    (tmp_path / "no-study").mkdir()
    assert docs_site.carried_out() == ["fairness"]
    page = docs_site.on_page_markdown(docs_site.GALLERY)
    assert page.startswith("## `fairness`: Title") and "Repeats: thesis, Figure 1." in page
    assert "Made by `hyroads study fairness --quick --seed 1`." in page
    assert "[![A plot](studies/fairness/p.png)](studies/fairness/p.pdf)" in page
    assert "| a rate | 1.0 | 0.900 (0.880 to 0.920) | published | 1 within 5 % | **missed** |" in page
    assert "| a share | 1.0 | 0.900 (0.800 to 1.100) | published | 1 within 5 % | undecided |" in page
    # Only a missed figure is listed as different.
    assert "- a rate: noise" in page and "few runs" not in page and "luck" not in page
    assert "Note." not in page and "Results" not in page

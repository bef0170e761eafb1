"""Live studies without a network: rows and their file, what counts as made, the floor's paths, and the verdicts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.study.framework import Settings, StudyError
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.studies import example, floor, pairs, rows, tcp
from hyroads.mininet.studies.rows import Measured, Row, RowsFile, Trial, measure_rows, shortfalls

STUDY, SETTING = "live-pairs", "seed 1"


def row(number: int, figures: dict[str, Any], why: str = "") -> Row:
    return Row(STUDY, SETTING, number, not why, figures, why, 1.0)


def quiet(done: int, total: int) -> None:
    pass


def test_rows_are_found_again_by_study_setting_and_number(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(row(1, {"mbps": 3.5}))
        file.add(row(2, {}, "too slow"))
    with RowsFile(path) as file:
        found = file.made(STUDY, SETTING, 1)
        assert found is not None and found.figures == {"mbps": 3.5}
        assert file.made(STUDY, SETTING, 2) is None, "what was not made is made again"
        assert file.made(STUDY, "seed 2", 1) is None
        assert file.made("live-tcp", SETTING, 1) is None
        file.add(row(2, {"mbps": 1.0}))
    with RowsFile(path) as file:
        found = file.made(STUDY, SETTING, 2)
        assert found is not None and found.figures == {"mbps": 1.0}


def test_a_line_that_was_being_written_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(row(1, {"mbps": 3.5}))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    with RowsFile(path) as file:
        file.add(row(2, {"mbps": 1.0}))
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", "[" * 10_000, '{"format": 1}', "\ufeff", "nan"],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(row(1, {}))
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(StudyError, match=r"rows\.jsonl, line 2: expected a row"), RowsFile(path):
        pass


def test_a_field_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(row(1, {}))
    path.write_text(path.read_text().replace('"number": 1', '"number": "1"'))
    with pytest.raises(StudyError, match="line 1: number: expected int"), RowsFile(path):
        pass


def test_two_commands_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowsFile(path), pytest.raises(StudyError, match="another command"), RowsFile(path):
        pass


class Network:
    """Stands for the emulation and the watch over the machine: what they say is what a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow: str = "") -> None:
        self.slow, self.ran = slow, 0
        monkeypatch.setattr(rows, "check_prerequisites", lambda: None)
        monkeypatch.setattr(rows, "run_network", self.run)
        monkeypatch.setattr(rows, "MachineWatch", lambda _: self)

    def run(self, _network: Any, _name: str, body: Any, *_: Any) -> int:
        self.ran += 1
        return int(body(self))

    def check(self) -> None:
        pass

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def result(self) -> Any:
        return type("Machine", (), {"why": self.slow})()


def trial(number: int, found: Measured | HyroadsError) -> Trial:
    def measure(_: Any) -> Measured:
        if isinstance(found, HyroadsError):
            raise found
        return found

    return Trial(number, example.network(), measure)


def test_a_run_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network, settings = Network(monkeypatch), Settings(rows=tmp_path / "rows.jsonl")
    first = [trial(1, Measured({"mbps": 1})), trial(2, EmulationError("the medium ended"))]
    assert [each.made for each in measure_rows(STUDY, SETTING, first, settings, quiet)] == [True, False]
    second = [trial(number, Measured({"mbps": 10 + number})) for number in (1, 2, 3)]
    found = measure_rows(STUDY, SETTING, second, settings, quiet)
    assert [each.figures for each in found] == [{"mbps": 1}, {"mbps": 12}, {"mbps": 13}]
    assert network.ran == 4


@pytest.mark.parametrize(
    ("slow", "short", "made"),
    [("", "", True), ("", "SP carried 1.0 of 2.0 Mb/s", True), ("in 1 of 9 s", "", True), ("in 1 of 9 s", "SP", False)],
)
def test_what_falls_short_counts_only_on_a_machine_that_was_not_slow(
    monkeypatch: pytest.MonkeyPatch, slow: str, short: str, made: bool
) -> None:
    Network(monkeypatch, slow)
    trials = [trial(1, Measured({"mbps": 1}, short)), trial(2, Measured({}))]
    found = measure_rows(STUDY, SETTING, trials, Settings(), quiet)[0]
    assert found.made is made
    assert ("too slow to be believed, in 1 of 9 s" in found.why) is not made


def test_a_study_without_any_row_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    Network(monkeypatch)
    with pytest.raises(StudyError, match="no row was made; the first one: the medium ended"):
        measure_rows(STUDY, SETTING, [trial(1, EmulationError("the medium ended"))], Settings(), quiet)


def test_an_interrupted_network_interrupts_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    Network(monkeypatch)
    monkeypatch.setattr(rows, "run_network", lambda *_: 130)
    with pytest.raises(KeyboardInterrupt):
        measure_rows(STUDY, SETTING, [trial(1, Measured({}))], Settings(), quiet)


def test_shortfalls_are_told_with_figures() -> None:
    assert shortfalls({"SP": (9.1, 10.0), "2bp": (8.0, 10.0)}, 0.9) == "2bp carried 8.0 of 10.0 Mb/s"


def test_one_clear_error_without_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["study", "live-example", "--no-plots", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "needs root" in said[0]


def test_rows_are_for_live_studies(tmp_path: Path, capsys: Any) -> None:
    assert main(["study", "fairness", "--no-plots", "--rows", str(tmp_path / "rows"), "--out", str(tmp_path)]) == 2
    assert "--rows is for live studies" in capsys.readouterr().err


FLOOR = floor.Floor(1)


def test_more_pairs_begin_with_the_same() -> None:
    few, many = FLOOR.pairs(4), FLOOR.pairs(9)
    assert many[:4] == few and len(set(many)) == 9


def test_schemes_keep_to_their_media() -> None:
    technology = {link.id: link.technology for link in FLOOR.network.links}
    for pair in FLOOR.pairs(3):
        schemes = FLOOR.schemes(pair)
        part = floor.part_of(FLOOR.network, [path for paths in schemes.values() for path in paths])
        used = {name: {technology[link] for path in paths for link in path} for name, paths in schemes.items()}
        assert used[floor.SP_WIFI] == {"wifi"}
        assert used[floor.MWIFI] <= {"wifi", "wifi-2"}
        assert all("wifi-2" not in used[name] for name in (floor.EMPOWER, floor.SP, floor.TWO_BEST))
        assert schemes[floor.SP][0] in schemes[floor.TWO_BEST] and len(schemes[floor.TWO_BEST]) == 2
        # Among themselves, the nodes of a part see the same media as on the floor.
        for paths in schemes.values():
            assert floor.paths_mbps(part, paths) == pytest.approx(floor.paths_mbps(FLOOR.network, paths), rel=1e-6)
        assert floor.paths_mbps(part, schemes[floor.EMPOWER]) >= floor.paths_mbps(part, schemes[floor.SP]) - 1e-9


def test_the_example_carries_what_was_published() -> None:
    network = example.network()
    assert floor.paths_mbps(network, (example.WIFI_PATH,)) == pytest.approx(20.0)
    assert floor.paths_mbps(network, (example.PLC_PATH,)) == pytest.approx(18.0)
    assert floor.paths_mbps(network, (example.WIFI_PATH, example.PLC_PATH)) == pytest.approx(29.0)


def of_example(beside: float) -> Row:
    phases = [{"1": 19.0, "2": 8.5}, {"1": beside, "2": 17.0}, {"1": 19.0, "2": 8.0}]
    return row(1, {"single_mbps": 19.0, "phases": phases})


def test_verdict_of_the_example() -> None:
    assert all(check.ok for check in example.checks([of_example(0.1)]))
    assert [check.ok for check in example.checks([of_example(4.0)])] == [True, True, False, True]


def of_pair(number: int, mwifi: float, steps: float) -> Row:
    mbps = dict.fromkeys(pairs.SHOWN, 10.0) | {floor.MWIFI: mwifi, pairs.STEPS: steps}
    return row(number, {"pair": "a-b", "mbps": mbps, "paths": {floor.EMPOWER: ["x", "y"]}})


def test_verdict_of_the_pairs_counts_who_is_ahead() -> None:
    found = [of_pair(1, 5.0, 8.0), of_pair(2, 9.0, 12.0), of_pair(3, 11.0, 12.0), row(4, {}, "too slow")]
    mwifi, steps, *level = pairs.checks(found)
    assert mwifi.measured == pytest.approx(2 / 3) and mwifi.ok
    assert steps.measured == pytest.approx(1 / 3) and not steps.ok and steps.why
    assert all(check.ok for check in level)


def test_a_scheme_without_a_route_is_beaten() -> None:
    figures = of_pair(1, 5.0, 8.0).figures
    del figures["mbps"][floor.SP_WIFI]
    assert np.isinf(pairs.ratios([figures], floor.SP_WIFI)).all()


def test_verdict_of_tcp_is_about_the_largest_margin() -> None:
    found = [
        row(k, {"pair": "a-b", "one_mbps": 10.0, "mbps": {"0": 9.0, "0.3": mbps}}) for k, mbps in ((1, 12), (2, 9))
    ]
    (check,) = tcp.checks(found, (0.0, 0.3))
    assert check.measured == pytest.approx(0.5) and not check.ok and check.why
    assert tcp.checks(found[:1], (0.0, 0.3))[0].ok

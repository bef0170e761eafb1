"""Live studies without a network: rows and their file, what counts as made, the floor's paths, and the verdicts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.study.framework import Settings, StudyError
from hyroads.controller.study.verdicts import Check, Verdict
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.studies import bandit, example, floor, learning, loading, mptcp, pairs, rows, tcp
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
    """Stands for the emulation and the plain lane beside it: what they say is what a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow: str = "") -> None:
        self.slow, self.ran = slow, 0
        self.directory, self.options = Path(), SimpleNamespace(realtime=True)
        monkeypatch.setattr(rows, "check_prerequisites", lambda: None)
        monkeypatch.setattr(rows, "run_network", self.run)
        monkeypatch.setattr(rows, "Reference", lambda *_, **__: self)

    def run(self, _network: Any, _name: str, body: Any, *_: Any) -> int:
        self.ran += 1
        return int(body(self))

    def check(self) -> None:
        pass

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def lane(self) -> Any:
        return SimpleNamespace(why_slow=self.slow)


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


MET, MISSED, UNDECIDED = Verdict
MANY = 6
"""As many equal rows as give an interval, which has no width."""


def verdicts(checks: Iterable[Check]) -> list[Verdict]:
    return [check.verdict for check in checks]


def of_example(beside: float) -> Row:
    phases = [{"1": 19.0, "2": 8.5}, {"1": beside, "2": 17.0}, {"1": 19.0, "2": 8.0}]
    return row(1, {"single_mbps": 19.0, "phases": phases})


def test_verdict_of_the_example() -> None:
    assert verdicts(example.checks([of_example(0.1)] * MANY)) == [MET] * 4
    assert verdicts(example.checks([of_example(4.0)] * MANY)) == [MET, MET, MISSED, MET]
    assert verdicts(example.checks([of_example(4.0)])) == [UNDECIDED] * 4


def of_pair(number: int, mwifi: float, steps: float) -> Row:
    mbps = dict.fromkeys(pairs.SHOWN, 10.0) | {floor.MWIFI: mwifi, pairs.STEPS: steps}
    return row(number, {"pair": "a-b", "mbps": mbps, "paths": {floor.EMPOWER: ["x", "y"]}})


def test_verdict_of_the_pairs_counts_who_is_ahead() -> None:
    found = [of_pair(1, 5.0, 8.0), of_pair(2, 9.0, 12.0), of_pair(3, 11.0, 12.0), row(4, {}, "too slow")]
    mwifi, steps, *level = pairs.checks(found * 20)
    assert mwifi.measured == pytest.approx(2 / 3) and mwifi.verdict is MET
    assert steps.measured == pytest.approx(1 / 3) and steps.verdict is MISSED and steps.why
    assert verdicts(level) == [MET] * 3
    assert verdicts(pairs.checks(found)) == [UNDECIDED] * 5


def test_a_scheme_without_a_route_is_beaten() -> None:
    figures = of_pair(1, 5.0, 8.0).figures
    del figures["mbps"][floor.SP_WIFI]
    assert np.isinf(pairs.ratios([figures], floor.SP_WIFI)).all()


def test_verdict_of_tcp_is_about_the_largest_margin() -> None:
    found = [
        row(k, {"pair": "a-b", "one_mbps": 10.0, "mbps": {"0": 9.0, "0.3": mbps}}) for k, mbps in ((1, 12), (2, 9))
    ]
    (check,) = tcp.checks(found * 40, (0.0, 0.3))
    assert check.measured == pytest.approx(0.5) and check.verdict is MISSED and check.why
    assert verdicts(tcp.checks(found[:1] * 10, (0.0, 0.3))) == [MET]
    assert verdicts(tcp.checks(found[:1], (0.0, 0.3))) == [UNDECIDED]


def of_bandit(number: int, carried: float, acts: dict[str, Any] | None = None) -> Row:
    figures: dict[str, Any] = {"pair": "a-b", "carried_mbps": carried, "worth_mbps": [8.0, 10.0]}
    return row(number, figures | ({"acts": acts} if acts else {}))


def acts(halved: list[float | None], better: float | None) -> dict[str, Any]:
    beside = {"halved_s": halved, "restored_s": [0.4, 0.6], "levels": [0.5, 0.52], "from_s": 0.0, "to_s": 9.0}
    change = {"is_better": True, "better_s": better, "best_mbps": 8.0, "carried_mbps": 7.0, "from_s": 9.0, "to_s": 19.0}
    return {"beside": beside, "drop": change, "move": {**change, "is_better": False, "better_s": None}}


def test_verdict_of_the_bandit_is_of_the_best_multipath() -> None:
    made = [of_bandit(1, 9.2, acts([0.3, 0.4], 3.0)).figures, of_bandit(2, 9.4).figures] * MANY
    found = bandit.checks(made)
    assert found[0].measured == pytest.approx(0.93) and set(verdicts(found)) == {MET}, found
    # A move after which the multipath in use is still the best says nothing.
    assert len(found) == 5 and bandit.first_is_not_best(made) == 1.0
    low = bandit.checks([of_bandit(1, 7.0).figures] * MANY)[0]
    assert low.verdict is MISSED and low.why


def test_what_was_not_seen_is_late() -> None:
    made = [of_bandit(1, 9.2, acts([None, None], None)).figures] * MANY
    halved, drop = (bandit.checks(made)[k] for k in (1, 4))
    assert halved.verdict is MISSED and halved.measured is None and "12 of 12" in halved.why
    assert drop.verdict is MISSED and drop.measured is None


def test_the_controller_of_learning_flows_plans_with_errors_and_the_medium_has_the_truth() -> None:
    pair = FLOOR.pairs(1)[0]
    network, truth, options = learning.learning_trial(FLOOR, pair)
    errors = np.array([link.capacity_mbps / truth[link.id] - 1.0 for link in network.links])
    assert 0.1 < errors.std() < 0.3 and set(truth) == {link.id for link in network.links}
    assert not any(link.technology == floor.SECOND for link in network.links)
    assert options.radios and pair[0] in network.nodes and pair[1] in network.nodes
    again, _, _ = learning.learning_trial(floor.Floor(1), pair)
    assert again.links == network.links


def test_a_link_that_drops_is_of_the_multipath_in_use_both_ways() -> None:
    network = example.network()
    truth = {link.id: link.capacity_mbps for link in network.links}
    arm = (example.WIFI_PATH, example.PLC_PATH)
    assert bandit._dropped(network, arm, truth) == {"ab-wifi": 5.0, "ab-wifi~": 5.0}
    assert learning.optimum_mbps(network, arm, truth) == pytest.approx(29.0)
    assert learning.optimum_mbps(network, arm, {**truth, "ab-wifi": 0.0}) == pytest.approx(18.0)


def test_a_place_counts_where_another_multipath_is_the_best() -> None:
    network = example.network()
    truth = {link.id: link.capacity_mbps for link in network.links}
    arms = [(example.WIFI_PATH,), (example.PLC_PATH,)]
    same, better, nothing = {"ab-wifi": 19.0}, {"ab-wifi": 6.0}, {"ab-wifi": 0.0, "ac-plc": 1.0}
    assert bandit.moved_truth(network, arms, truth, [same, nothing]) is None
    assert bandit.moved_truth(network, arms, truth, [same, nothing, better]) == {**truth, **better}


def test_rates_and_moments_of_a_watch() -> None:
    watch = bandit.Watch.__new__(bandit.Watch)
    # 8 Mb/s of L2 payload, half of it from 2 s on.
    each = 8.0e6 / 8 * bandit.IP_SHARE * 0.1
    watch.samples, total = [], 0.0
    for tick in range(60):
        watch.samples.append((tick * 0.1, round(total)))
        total += each if tick < 20 else each / 2
    assert watch.mbps(0.0, 1.95) == pytest.approx(8.0, rel=1e-3)
    assert watch.mbps(3.0, 5.0) == pytest.approx(4.0, rel=1e-3)
    fell = watch.until_s(1.5, lambda mbps: mbps <= 0.6 * 8.0)
    assert fell is not None and 0.4 <= fell <= 0.7
    assert watch.until_s(1.5, lambda mbps: mbps <= 1.0) is None
    # Whoever samples was held up from 3 to 4 s.
    watch.samples = [sample for sample in watch.samples if not 3.0 < sample[0] < 4.0]
    assert watch.mbps(3.5, 4.05) == pytest.approx(4.0, rel=1e-2)
    assert watch.until_s(3.0, lambda mbps: mbps <= 1.0) is None


def of_mptcp(hymab: float, kernels: float, one: float) -> dict[str, Any]:
    mbps = {mptcp.HYMAB: hymab, mptcp.KERNELS: kernels, mptcp.ONE: one}
    return {"pair": "a-b", "mbps": mbps, "theory_mbps": dict.fromkeys(mbps, 20.0)}


def test_verdict_of_mptcp_is_about_the_mean() -> None:
    even, *others = mptcp.checks([of_mptcp(18.0, 20.0, 12.0), of_mptcp(19.0, 18.0, 12.0)] * MANY)
    assert even.verdict is MET and even.measured == pytest.approx((0.9 + 19 / 18) / 2) and verdicts(others) == [MET] * 2
    even, ours, kernels = mptcp.checks([of_mptcp(10.0, 20.0, 12.0)] * MANY)
    assert even.verdict is MISSED and even.why and ours.verdict is MISSED and kernels.verdict is MET


def of_loading(number: int, delays_ms: list[int], hywf: float) -> Row:
    seconds = {loading.FIRST: [0.5, 0.6], loading.SECOND: [1.5, 1.6], loading.KERNELS: [0.7, 0.7]}
    return row(number, {"delays_ms": delays_ms, "seconds": {**seconds, loading.HYWF: [hywf, hywf]}})


def test_verdict_of_loading_is_between_both_networks() -> None:
    rows = [of_loading(1, [50, 150], 1.0), of_loading(2, [50, 150], 1.2), row(3, {}, "too slow")]
    found = loading.seconds_of(rows)
    assert found[50, 150][loading.HYWF].tolist() == [1.0, 1.0, 1.2, 1.2]
    assert verdicts(loading.checks(loading.seconds_of(rows * 3))) == [MET]
    for hywf in (0.4, 1.7):
        (check,) = loading.checks(loading.seconds_of([of_loading(1, [50, 150], hywf)] * MANY))
        assert check.verdict is MISSED and check.why
    (even,) = loading.checks(loading.seconds_of([of_loading(1, [50, 50], 0.4)] * MANY))
    assert even.verdict is MET, "with even delays there is no between"


def test_pages_and_networks_of_loading() -> None:
    few, many = loading.pages_of(1, 4), loading.pages_of(1, 40)
    assert many[:4] == few and few != loading.pages_of(2, 4)
    assert all(len(page) >= 6 and min(page) >= 200 for page in many)
    network = loading.network((50, 300))
    assert [link.delay_ms for link in network.links] == [25.0, 25.0, 150.0, 150.0]
    assert all(network.interference.domain(k).tolist() == [k] for k in range(4)), "directions do not share"


def test_sigterm_ends_rows_as_an_interruption_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Network(monkeypatch)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    for number in (signal.SIGTERM, signal.SIGHUP):

        def work(_: Any, number: signal.Signals = number) -> Measured:
            signal.raise_signal(number)
            return Measured({})

        kept = Settings(rows=tmp_path / f"rows-{number}.jsonl")
        with pytest.raises(KeyboardInterrupt):
            measure_rows(STUDY, SETTING, [Trial(1, example.network(), work)], kept, quiet)
        # It is free again, and has no row.
        with RowsFile(kept.rows) as file:
            assert file.made(STUDY, SETTING, 1) is None
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == handlers


def test_why_mwifi_is_ahead_is_by_theory() -> None:
    made = of_pair(1, 20.0, 8.0).figures | {
        "theory_mbps": {floor.EMPOWER: 10.0, floor.MWIFI: 20.0, floor.SP_WIFI: 10.0, floor.SP: 9.0}
    }
    check = pairs.checks([row(1, made)] * 20)[0]
    assert check.verdict is MISSED
    assert "EMPoWER ahead in 0 of the same 20 pairs" in check.why and "2.00 times" in check.why

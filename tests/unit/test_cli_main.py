"""The command ``hyroads`` as users see it: commands, exit status, one line on stderr."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hyroads.controller.cli import main as cli
from hyroads.controller.cli import plan
from hyroads.controller.cli.network import TOPOLOGY
from hyroads.controller.cli.remote import print_table
from hyroads.controller.core import planner
from hyroads.controller.core.errors import PlanningError

TRIANGLE = str(Path(__file__).parents[2] / "mininet" / "networks" / "triangle.yaml")


HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]


def hyroads(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HYROADS, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_help_lists_every_command() -> None:
    result = hyroads("--help")
    assert result.returncode == 0
    assert all(f"\n  {name} " in result.stdout for name in cli.COMMANDS)
    assert all(summary in result.stdout for _, summary in cli.COMMANDS.values())


@pytest.mark.parametrize(("word", "expected"), [("chek-config", "did you mean check-config?"), ("\x1b[2J", "unknown")])
def test_an_unknown_command_is_one_line_that_lists_what_exists(word: str, expected: str) -> None:
    result = hyroads(word)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert expected in result.stderr
    assert ", ".join(cli.COMMANDS) in result.stderr
    assert "\x1b" not in result.stderr


def test_no_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "no command given; commands are plan" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hyroads {cli.version()}\n"


def test_bad_arguments_exit_with_two() -> None:
    result = hyroads("check-config")
    assert result.returncode == 2
    assert result.stderr == "hyroads check-config: the following arguments are required: file (see --help)\n"


def register(monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int]) -> None:
    command = SimpleNamespace(COMMAND=cli.Command("A command of the test.", run))
    monkeypatch.setitem(sys.modules, "hyroads.controller.cli.command_of_the_test", command)  # type: ignore[arg-type]
    monkeypatch.setitem(cli.COMMANDS, "test", ("command_of_the_test", ""))


def test_an_error_of_ours_is_one_line_and_exit_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise PlanningError("no path from a to b")

    register(monkeypatch, run)
    assert cli.main(["test"]) == 2
    assert capsys.readouterr().err == "hyroads: no path from a to b\n"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(args: argparse.Namespace) -> int:
        raise KeyError("bug")

    register(monkeypatch, run)
    with pytest.raises(KeyError):
        cli.main(["test"])


def test_the_status_of_the_command_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, lambda args: 1)
    assert cli.main(["test"]) == 1


def test_interrupt_exits_with_130(tmp_path: Path) -> None:
    fifo = tmp_path / "network.yaml"
    os.mkfifo(fifo)
    with subprocess.Popen([*HYROADS, "check-config", str(fifo)], stderr=subprocess.PIPE, text=True) as process:
        with fifo.open("w"):  # returns once the command waits for the file's text
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_reader_that_leaves_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(
        [*HYROADS, "check-config", "--json", TRIANGLE],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write_end)
    assert result.returncode == 128 + signal.SIGPIPE
    assert result.stderr == ""


def test_only_the_module_of_the_command_is_loaded() -> None:
    code = (
        "import sys; from hyroads.controller.cli.main import main; main(['--help']); "
        "print([m for m in sys.modules if m.startswith(('numpy', 'ryu', 'hyroads.controller.cli.'))])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "['hyroads.controller.cli.main']"


def test_check_config_summarises(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", TRIANGLE]) == 0
    text = capsys.readouterr().out
    assert "wifi            4  links, min 15, mean 22.5, max 30 Mb/s, shared" in text
    assert "domains         2  by technology: 1 of 2 links, 1 of 4 links" in text
    assert cli.main(["check-config", TRIANGLE, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nodes"] == {"gateway": ["a"], "ap": ["b"], "client": ["c"], "switch": []}
    assert report["interference"] == {"rule": "technology", "domains": 2, "sizes": {"2": 1, "4": 1}}
    assert report["live"] == "yes"
    assert cli.main(["check-config", TRIANGLE, "--netjson"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "NetworkGraph"


def test_check_config_lists_all_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("nodes: {a: {role: ap}}\nlinks: [{id: l, from: a, to: b}]\ninterference: {}\n")
    assert cli.main(["check-config", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"{file}: links[0].technology: is missing",
        f"{file}: links[0].to: expected the id of a node, got 'b'",
        f"{file}: interference: expected exactly one of rule, conflicts or domains, got none",
    ]


def test_check_config_says_what_access_points_have_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "open.yaml"
    file.write_text(
        "nodes: {a: {role: gateway, technologies: [wifi, plc]}, b: {role: ap, technologies: [wifi, plc]}}\n"
        "links: discover\ntechnologies: {wifi: {}, plc: {}}\ninterference: {rule: hearing}\n"
    )
    assert cli.main(["check-config", str(file)]) == 0
    text = capsys.readouterr().out
    assert "wifi            2  links that there could be, 2 without capacity (settings: capacities: measured)" in text
    assert cli.main(["check-config", str(file), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["discover"] is True
    assert report["technologies"]["plc"]["to_measure"] == 2
    assert report["technologies"]["plc"]["capacity_max_mbps"] is None


def test_check_config_says_what_cannot_run_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "parallel.yaml"
    link = "from: a, to: b, technology: wifi, capacity_mbps: 1"
    file.write_text(
        "nodes: {a: {role: ap}, b: {role: ap}}\ninterference: {rule: technology}\n"
        f"links: [{{id: one, {link}}}, {{id: two, {link}}}]\n"
    )
    assert cli.main(["check-config", str(file)]) == 0
    assert "for planning only, not live: links.two: link one has the same ends" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_what_the_table_promises(name: str) -> None:
    command = cli.load(name)
    assert command.HELP
    command.add_arguments(argparse.ArgumentParser())
    assert callable(command.run)


@pytest.mark.parametrize("command", [["plan", "--from", "a", "--to", "b"], ["allocate"]])
def test_a_wrong_network_file_is_one_line_and_exit_two(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("nodes: {a: {role: ap}}\nlinks: []\ninterference: {rule: technologie}\nflow: []\n")
    assert cli.main([command[0], str(file), *command[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"hyroads: {file}: flow: unknown key (did you mean 'flows'?)\n"


HEAVY = ("eventlet", "flask", "marshmallow", "mininet", "numpy", "rich", "ryu", "scipy")


@pytest.mark.parametrize(
    "command",
    [
        ["controller", "--config", "FILE"],
        ["controller", "--network", "FILE"],
        ["slicer", "--config", "FILE"],
        ["slicer", "--config", "FILE", "--check"],
        ["plan", "FILE", "--from", "a", "--to", "b"],
        ["emulate", "FILE"],
        ["demo", "FILE"],
    ],
    ids=" ".join,
)
def test_a_wrong_name_is_told_before_anything_large_is_imported(command: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    program = (
        "import sys; from hyroads.controller.cli.main import main; "
        f"status = main({[missing if word == 'FILE' else word for word in command]!r}); "
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    assert done.stderr.count("\n") == 1 and missing[:20] in done.stderr


def test_the_defaults_of_plan_are_those_of_the_planner() -> None:
    assert (plan.DEFAULT_SHORTEST, plan.DEFAULT_ARMS) == (planner.DEFAULT_SHORTEST, planner.DEFAULT_ARMS)


def test_what_a_verb_does_not_know_is_said_by_the_verb(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["client", "run", "client.yaml"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "hyroads client run: unrecognized arguments: client.yaml (see --help)\n"


def test_topology_shows_neighbours_with_guesses_and_devices(capsys):
    heard = {"node": None, "guess": {"node": "up", "technology": "wifi"}, "mac": "02:aa:00:00:00:01",
             "tx_mbps": 54.0, "rx_mbps": None, "signal_dbm": -61.0}  # fmt: skip
    known = {**heard, "node": "attic", "guess": None, "mac": "02:aa:00:00:00:02"}
    device = {"al": "42:00:00:00:00:9a", "heard_by": [{"node": "gw", "interface": "eth1", "mac": "02:aa:00:00:00:03"}],
              "links": [{"capacity_mbps": 90.0, "busy": 0.6}]}  # fmt: skip
    interface = {"technology": "wifi", "neighbours": [heard, known]}

    class Measured:
        def get(self, where):
            assert where == "/measurements"
            return {"radios": [{"node": "gw", "interfaces": [interface]}], "devices": [device]}

    def table(name):
        verb = next(one for one in TOPOLOGY.verbs if one.name == name)
        TOPOLOGY.show(verb.do(Measured(), argparse.Namespace()), verb, as_json=False)
        return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]

    assert table("neighbours") == [
        ["gw/wifi", "02:aa:00:00:00:01", "-", "up/wifi", "54", "-", "-61"],
        ["gw/wifi", "02:aa:00:00:00:02", "attic", "-", "54", "-", "-61"],
    ]
    assert table("devices") == [["42:00:00:00:00:9a", "gw/eth1", "90", "Mb/s,", "60%", "busy"]]


def test_names_in_a_table_are_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    # Rich takes this for a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    titles = ["box", "state", "node", "system", "interfaces", "key", "pending"]
    row = ["b827eb-41c0a1", "pending", None, "Debian GNU/Linux 12 (bookworm)", ["eth0", "eth1"], "8a6f1c3b5d7e9f20", []]
    print_table(titles, [row])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "b827eb-41c0a1" in shown and "\u2026" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 60
    monkeypatch.delenv("FORCE_COLOR")
    print_table(titles, [row])
    assert len(capsys.readouterr().out.splitlines()) == 2, "a pipe gets one line a row"

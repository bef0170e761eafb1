"""``hyroads lab``: boxes that are whole systems, set up from packages as the how-to pages say, and measured."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .emulate import say
from .main import Command, argument, either

if TYPE_CHECKING:
    from hyroads.mininet.lab.run import Lab, LabOptions

LABS = ("three-boxes",)
SUITES = ("bookworm", "trixie")
_MOST_TRIES = 100


def _run(args: argparse.Namespace) -> int:
    from hyroads.mininet.lab import guest
    from hyroads.mininet.lab.run import LabOptions, run_lab
    from hyroads.mininet.lab.three_boxes import plan
    from hyroads.mininet.programs import EmulationError

    script, packages = (None if path is None else Path(path) for path in (args.script, args.packages))
    if script is not None and not script.is_file():
        raise EmulationError(f"--script {script}: no such file")
    if packages is not None and not packages.is_dir():
        raise EmulationError(f"--packages {packages}: no such folder")
    if not 1 <= args.repeat <= _MOST_TRIES:
        raise EmulationError(f"--repeat {args.repeat}: expected 1 to {_MOST_TRIES}")
    options = LabOptions(args.suite, args.mirror, packages)
    if args.kernel:
        _check_kernel_options(args)
    if args.kernel and not guest.is_guest():
        _start_guest(options, script)
    if args.kernel:
        guest.check_kernel()
    work = partial(_work, args=args, script=script)
    return run_lab(args.name or args.lab, plan(radios=args.kernel), options, work, say)


def _check_kernel_options(args: argparse.Namespace) -> None:
    from hyroads.mininet.programs import EmulationError

    if args.cli:
        raise EmulationError("--cli: a guest kernel has no input; use --script FILE")
    if args.long or args.learning:
        raise EmulationError("--kernel: rows of --long and --learning would take hours in a guest kernel")


def _start_guest(options: LabOptions, script: Path | None) -> NoReturn:
    """Run this command in a guest kernel. What needs a network, which guests do not have, is made before."""
    from hyroads.mininet.lab.guest import guest_kind, run_in_guest
    from hyroads.mininet.lab.run import root_and_packages
    from hyroads.mininet.programs import LAB_TOOLS, check_prerequisites

    check_prerequisites(LAB_TOOLS)
    kind = guest_kind()
    root, debs = root_and_packages(options, say)
    words = sys.argv[1:] if options.packages else [*sys.argv[1:], "--packages", str(debs)]
    run_in_guest(kind, words, [root.parent, debs, *([] if script is None else [script.resolve().parent])])


def _work(lab: Lab, args: argparse.Namespace, script: Path | None) -> int:
    """What is done on the boxes once they run; the exit status."""
    from hyroads.mininet.lab.measuring import Measuring
    from hyroads.mininet.lab.prompt import serve
    from hyroads.mininet.lab.three_boxes import Setup

    setup = Setup(lab, radios=args.kernel)

    def measure() -> int:
        verdict = Measuring(setup, args.repeat, long=args.long, learning=args.learning).run()
        print(json.dumps(verdict.document()) if args.json else verdict.text(), flush=True)
        return verdict.status

    if args.cli or script is not None:
        return serve(lab, setup.run, measure, script)
    setup.attempt()
    return measure()


COMMAND = Command(
    "Boot boxes that are whole Debian systems, set them up from packages as the how-to pages say, and measure what "
    "they carry (needs root). Exit status 0: all rows of the verdict are met, 3: one is missed, 2: it could not run.",
    _run,
    argument("lab", choices=LABS, help="which lab"),
    either(
        argument("--cli", action="store_true", help="a prompt, before anything is set up; leaving it ends the lab"),
        argument("--script", metavar="FILE", help="run a file of commands of the prompt, then end"),
    ),
    argument("--json", action="store_true", help="print the verdict as JSON"),
    argument("--repeat", type=int, default=1, metavar="N", help="each row is the median of N tries (default 1)"),
    argument("--long", action="store_true", help="also rows for ports of other MTUs (minutes)"),
    argument("--learning", action="store_true", help="also measure what HyMAB learns, which takes five minutes"),
    argument(
        "--kernel",
        action="store_true",
        help="in a guest kernel (scripts/guest.sh): the kernel's Open vSwitch, 802.11 radios, an 802.11s backhaul",
    ),
    argument("--packages", metavar="FOLDER", help="folder with the packages (default: built from the checkout)"),
    argument("--suite", choices=SUITES, default=SUITES[0], help="Debian of the boxes (default %(default)s)"),
    argument("--mirror", metavar="URL", help="mirror of Debian (default: one of this machine's apt sources)"),
    argument("--name", help="name of the lab, of its namespaces and run directory (default: the lab's)"),
)

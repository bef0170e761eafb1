"""``hyroads box doctor``: checks what a box needs to work in the network (docs/how-to/box-doctor.md).

Everything is judged in ``access_point/doctor.py``. Nothing is changed, and no secret is shown. On a box it needs the
standard library alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hyroads.controller.access_point.doctor import FAULT, BoxFacts, Finding, judge
from hyroads.controller.access_point.doctor_settings import DEFAULT_CONFIG, DEFAULT_SETTINGS, read_settings

from .main import Command, argument

FOUND = 1


def _run(args: argparse.Namespace) -> int:
    from hyroads.controller.access_point.doctor_facts import read_facts

    settings, config = (None if name is None else Path(name) for name in (args.settings, args.config))
    facts = read_facts(read_settings(settings, config))
    findings = judge(facts)
    faults = sum(finding.level == FAULT for finding in findings)
    if args.json:
        document = {"node": facts.node, "faults": faults, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(facts, findings, faults)))
    return FOUND if faults else 0


def _lines(facts: BoxFacts, findings: tuple[Finding, ...], faults: int) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.level}  {finding.check} {finding.place}: {finding.what}: {finding.do}"
    yield f"{facts.node or 'this box'}: {faults} faults, {len(findings) - faults} notes"


DOCTOR = Command(
    "Check this box: datapath, ports, radios, power line, clock, token, certificates, names, space, services, "
    "controller. Changes nothing. Exit status 1: something keeps it from working.",
    _run,
    argument("--settings", metavar="FILE", help=f"the agents' settings (default {DEFAULT_SETTINGS})"),
    argument("--config", metavar="FILE", help=f"the radios' file (default {DEFAULT_CONFIG})"),
    argument("--json", action="store_true", help="print everything as one JSON document"),
)

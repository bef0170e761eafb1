"""``hyroads latency``: best technology, best split and proportional split of a load over two queues."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from rich.console import Console
from rich.table import Table

from hyroads.controller.core.latency.policy import Split, best_single, best_split, split_delay_s
from hyroads.controller.core.latency.two_state_queue import LatencyError, TwoStateQueue, mean_delay_s

from .main import Command, argument


def _run(args: argparse.Namespace) -> int:
    if len(args.queue) != 2:
        raise LatencyError(f"--queue: expected two queues, got {len(args.queue)}")
    first, second = (_queue(text) for text in args.queue)
    try:
        split = best_split(first, second, args.load)
    except LatencyError as error:
        raise LatencyError(f"--{error}") from error
    single = best_single((first, second), args.load)
    if args.json:
        print(json.dumps(_document(split, single), indent=2, allow_nan=False))
    else:
        _print_tables(first, second, args.load, split, single)
    return 0


def _queue(text: str) -> TwoStateQueue:
    expected = f"--queue {text[:60]!a}: expected four numbers MU_H,MU_L,ALPHA_H,ALPHA_L"
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise LatencyError(expected) from error
    if len(numbers) != 4:
        raise LatencyError(f"{expected}, got {len(numbers)}")
    try:
        return TwoStateQueue(*numbers)
    except LatencyError as error:
        raise LatencyError(f"--queue {text[:60]!a}: {error}") from error


def _document(split: Split, single: int) -> dict[str, Any]:
    return {
        "lambda0": split.lambda0,
        "best_single": single + 1,
        "p_star": split.share,
        "delay_p_star_s": split.delay_s,
        "p_lim": split.proportional_share,
        "delay_p_lim_s": split.proportional_delay_s,
    }


def _print_tables(first: TwoStateQueue, second: TwoStateQueue, load: float, split: Split, single: int) -> None:
    console = Console(highlight=False)
    queues = Table("queue", "mean rate, 1/s", "std, 1/s", "load, %", "delay alone, ms", title="Technologies")
    for number, queue in enumerate((first, second), start=1):
        spread = math.sqrt(queue.variance)
        alone_ms = _ms(mean_delay_s(queue, load))
        queues.add_row(str(number), f"{queue.muhat:.6g}", f"{spread:.6g}", f"{100 * load / queue.muhat:.1f}", alone_ms)
    console.print(queues)
    choices = Table("choice", "share of queue 1", "mean delay, ms", title=f"{load:g} packets/s")
    alone = 1.0 - single
    choices.add_row(f"queue {single + 1} alone", f"{alone:.4f}", _ms(split_delay_s(first, second, load, alone)))
    choices.add_row("best split p*", f"{split.share:.4f}", _ms(split.delay_s))
    choices.add_row("proportional p_lim", f"{split.proportional_share:.4f}", _ms(split.proportional_delay_s))
    console.print(choices)
    console.print(f"one technology alone is best up to lambda_0 = {split.lambda0:.6g} packets/s")


def _ms(delay_s: float) -> str:
    return f"{1e3 * delay_s:.4g}" if math.isfinite(delay_s) else "unstable"


COMMAND = Command(
    "Mean delays of a load over two technologies whose service alternates between two rates: the best single one, the "
    "best split p* and the static proportional one p_lim. Rates are packets/s and transitions/s; p is queue 1's share.",
    _run,
    argument(
        "--queue",
        action="append",
        required=True,
        metavar="MU_H,MU_L,ALPHA_H,ALPHA_L",
        help="a technology: service rates in packets/s, rates at which either state is left in 1/s; to be given twice",
    ),
    argument("--load", type=float, required=True, metavar="LAMBDA", help="arrivals, packets/s"),
    argument("--json", action="store_true", help="print one JSON document"),
)

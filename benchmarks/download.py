"""Downloads over several interfaces, beside aria2 and curl in the same run (root for all but ``loopback``).

    python benchmarks/download.py [--only two ten rates loopback] [--repeats 5]

``two``: 30 MB over 20 + 30 Mb/s, ``ten``: 100 MB over ten interfaces of 3..30 Mb/s, of what all can carry of a file.
``rates``: three GETs through the proxy, a over if0, b over both, c over if1, while the rates of the interfaces change
(Yap, Stanford 2013, figure 4.8), beside the exact max-min rates. ``loopback``: 1 GB beside curl.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from download_lab import GOODPUT, PORT, SERVER, Lab  # noqa: E402

from hyroads.controller.core.fair.maxmin import Flow, Shares, allocate  # noqa: E402

PARTS = ("two", "ten", "rates", "loopback")
TWO = ([20.0, 30.0], 30_000_000)
TEN = ([*map(float, range(3, 33, 3))], 100_000_000)
# Seconds from the beginning, and the rates of both interfaces from then on.
CHANGES = ((0.0, (10.0, 25.0)), (11.0, (20.0, 8.0)), (18.0, (12.0, 30.0)), (29.0, (24.0, 10.0)))
END_S = 40.0
FLOWS = {"a": ["if0"], "b": ["if0", "if1"], "c": ["if1"]}
BIN_S = 0.1
WINDOW_S = 2.0
LARGE = 400_000_000
LOOPBACK_BYTES = 1_000_000_000


def median(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}..{max(values):.3f})"


def compare(rates: list[float], size: int, repeats: int, folder: Path) -> None:
    """Ratios to what all interfaces can carry: fetch by its own clock, both programs from their start to their end."""
    found: dict[str, list[float]] = {"fetch": [], "fetch, whole process": [], "aria2, whole process": []}
    with Lab(rates, folder / "served") as lab:
        lab.serve()
        target = folder / "file"
        warm = ["curl", "-sSo", "/dev/null", "-r", "0-9", f"http://{SERVER}:{PORT}/{size}.bin"]
        lab.start(lab.client, *warm).wait()
        for _ in range(repeats):
            target.unlink(missing_ok=True)
            status, document, error, wall_s = lab.fetched("-o", str(target), f"http://{SERVER}:{PORT}/{size}.bin")
            assert status == 0 and target.read_bytes() == (folder / "served" / f"{size}.0").read_bytes(), error
            possible_s = size * 8e-6 / lab.possible_mbps
            found["fetch"].append(possible_s / document["files"][0]["seconds"])
            found["fetch, whole process"].append(possible_s / wall_s)
            target.unlink()
            words = [f"--multiple-interface={','.join(lab.names)}", "-x16", "-s16", "-k1M", "--file-allocation=none"]
            began_s = time.monotonic()
            lab.start(
                lab.client,
                "aria2c",
                "-q",
                *words,
                "-d",
                str(folder),
                "-o",
                "file",
                f"http://{SERVER}:{PORT}/{size}.bin",
            ).wait()
            found["aria2, whole process"].append(possible_s / (time.monotonic() - began_s))
            assert target.read_bytes() == (folder / "served" / f"{size}.0").read_bytes()
    over = ", ".join(f"{rate:g}" for rate in rates)
    print(f"{size / 1e6:g} MB over {over} Mb/s, of the possible {sum(rates) * GOODPUT:.1f}:")
    for what, values in found.items():
        print(f"  {what:<24}{median(values)}", flush=True)


def peak_kib(pid: int) -> int:
    """The greatest memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def read_through_proxy(names: list[str], ports: list[int], seconds: float) -> None:
    """Child: GETs through the proxy; prints the bytes of each in every tenth of a second."""
    counts = {name: [0] * int(seconds / BIN_S) for name in names}
    began_s = time.monotonic()

    def read(name: str, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
        connection.request("GET", f"http://{SERVER}:{port}/{LARGE}.bin")
        answer, buffer = connection.getresponse(), bytearray(65536)
        while (now_s := time.monotonic() - began_s) < seconds:
            count = answer.fp.raw.readinto(buffer)
            counts[name][min(int(now_s / BIN_S), len(counts[name]) - 1)] += count

    threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in zip(names, ports, strict=True)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    print(json.dumps(counts), flush=True)
    os._exit(0)


def rates(folder: Path) -> None:
    """Figure 4.8: the worst two seconds of each phase but for its first second, and the whole of it."""
    ports = [PORT + k for k in range(len(FLOWS))]
    with Lab(list(CHANGES[0][1]), folder / "served") as lab:
        lab.serve(ports)
        rules = [
            {"name": n, "match": {"port": p}, "interfaces": i} for (n, i), p in zip(FLOWS.items(), ports, strict=True)
        ]
        (folder / "flows.json").write_text(json.dumps({"flows": rules}))
        for port in ports:
            lab.start(
                lab.client, "curl", "-sSo", "/dev/null", "-r", "0-9", f"http://{SERVER}:{port}/{LARGE}.bin"
            ).wait()
        words = [sys.executable, "-m", "hyroads.controller.cli", "proxy", "--interfaces", "if0,if1"]
        proxy = lab.start(lab.client, *words, "--flows", str(folder / "flows.json"), stderr=subprocess.PIPE, text=True)
        proxy.stderr.readline()
        child = [sys.executable, __file__, "--read", *map(str, ports), "--seconds", str(END_S)]
        reader = lab.start(lab.client, *child, stdout=subprocess.PIPE, text=True)
        began_s = time.monotonic() + 0.15
        for at_s, pair in CHANGES[1:]:
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            for k, mbps in enumerate(pair):
                lab.set_rate(k, mbps)
        counts = json.loads(reader.communicate(timeout=60)[0])
        memory = peak_kib(proxy.pid)
    print(f"three GETs through the proxy, Mb/s of the file; greatest memory {memory / 1024:.1f} MiB")
    ends = [at_s for at_s, _ in CHANGES[1:]] + [END_S]
    worst = 0.0
    for (at_s, pair), end_s in zip(CHANGES, ends, strict=True):
        fair = allocate(
            Shares({"if0": pair[0], "if1": pair[1]}, {n: Flow(1.0, frozenset(i)) for n, i in FLOWS.items()})
        )
        cells = []
        for name in FLOWS:
            bins = counts[name][int((at_s + 1.0) / BIN_S) : int(end_s / BIN_S) - 1]
            width = int(WINDOW_S / BIN_S)
            unit = 8e-6 / WINDOW_S / (fair.rate_mbps[name] * GOODPUT)
            windows = [sum(bins[k : k + width]) * unit for k in range(len(bins) - width + 1)]
            whole = sum(bins) * 8e-6 / (len(bins) * BIN_S * fair.rate_mbps[name] * GOODPUT)
            if at_s > 0:
                worst = max(worst, *(abs(each - 1) for each in windows))
            cells.append(
                f"{name} {fair.rate_mbps[name] * GOODPUT:5.2f} x {whole:.3f} ({min(windows):.3f}..{max(windows):.3f})"
            )
        print(f"  from {at_s:4.0f} s, {pair[0]:g} and {pair[1]:g} Mb/s: " + "   ".join(cells))
    print(f"  farthest from max-min in any {WINDOW_S:g} s from 1 s after a change: {worst:.1%}", flush=True)


def loopback(repeats: int, folder: Path) -> None:
    """Of curl's rate: fetch beside ``curl -o``, the proxy's GET and CONNECT beside curl without a proxy."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/support/range_server.py"), "--listen", "127.0.0.1:8790", str(folder)],
        stdout=subprocess.PIPE,
    )
    server.stdout.readline()
    url = f"http://127.0.0.1:8790/{LOOPBACK_BYTES}.bin"
    hyroads = [sys.executable, "-m", "hyroads.controller.cli"]
    proxy = subprocess.Popen(
        [
            *hyroads,
            "proxy",
            "--listen",
            "127.0.0.1:3190",
            "--interfaces",
            "lo",
            "--allow-local",
            "--connect-ports",
            "all",
        ],
        env=environment,
        stderr=subprocess.PIPE,
    )
    proxy.stderr.readline()

    def curl(*words: str) -> float:
        done = subprocess.run(["curl", "-sS", "-w", "%{speed_download}", *words, url], capture_output=True, text=True)
        return float(done.stdout) * 8e-6

    target = folder / "file"
    found: dict[str, list[float]] = {
        "fetch / curl -o": [],
        "GET by the proxy / curl": [],
        "CONNECT by the proxy / curl": [],
    }
    peaks = []
    curl("-o", "/dev/null")
    for _ in range(repeats):
        direct = curl("-o", "/dev/null")
        by = ["-x", "http://127.0.0.1:3190", "-o", "/dev/null"]
        found["GET by the proxy / curl"].append(curl(*by) / direct)
        found["CONNECT by the proxy / curl"].append(curl("-p", *by) / direct)
        to_file = curl("-o", str(target))
        target.unlink()
        words = [*hyroads, "fetch", "--json", "-o", str(target), url]
        fetch = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        document = json.loads(fetch.stdout.read())
        peaks.append(os.wait4(fetch.pid, 0)[2].ru_maxrss / 1024)
        found["fetch / curl -o"].append(document["files"][0]["rate_mbps"] / to_file)
        target.unlink()
    memory = peak_kib(proxy.pid)
    for program in (proxy, server):
        program.terminate()
        program.wait()
    print(f"loopback, {LOOPBACK_BYTES / 1e9:g} GB; curl {direct:.0f} Mb/s, into a file {to_file:.0f}")
    for what, values in found.items():
        print(f"  {what:<28}{median(values)}")
    print(f"  greatest memory: fetch {max(peaks):.1f} MiB, proxy {memory / 1024:.1f} MiB", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--read", nargs="+", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read_through_proxy(list(itertools.islice(FLOWS, len(arguments.read))), arguments.read, arguments.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "two" in arguments.only:
            compare(*TWO, arguments.repeats, folder)
        if "ten" in arguments.only:
            compare(*TEN, arguments.repeats, folder)
        if "rates" in arguments.only:
            rates(folder)
        if "loopback" in arguments.only:
            loopback(arguments.repeats, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

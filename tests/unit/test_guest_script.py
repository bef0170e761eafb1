"""scripts/guest.sh with a stand-in kernel: what it hands over and passes on, and its errors. It needs no root."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "guest.sh"
# Runs the job as the guest's first process does, but on this machine.
KERNEL = """#!/bin/bash
for word in "$@"; do case $word in CONTROL=*) control=${word#*=} ;; esac; done
printf '%s\\n' "$@" >"$(dirname "$0")/said"
echo "log of the kernel" >&9
[ ! -e "$(dirname "$0")/crash" ] || exit 1
bash "$control/job"
echo $? >"$control/status"
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "linux"
    path.write_text(KERNEL)
    path.chmod(0o755)
    return path


def guest(*arguments: str, kernel: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HYROADS_GUEST_KERNEL": str(kernel or ""), **variables}
    return subprocess.run(
        [SCRIPT, *arguments], env=variables, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )


def folders_of(pid: int) -> list[Path]:
    return list(Path("/tmp").glob(f"hyroads-guest-{pid}-*"))


@pytest.mark.parametrize("status", [0, 1, 77])
def test_output_and_status_are_the_commands(kernel: Path, status: int) -> None:
    done = guest("sh", "-c", f"echo out; echo err >&2; exit {status}", kernel=kernel)
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "err\n")


def test_words_environment_and_folder_arrive_as_they_are(kernel: Path) -> None:
    words = ["two words", "$HOME `id` \"'", "line\nline", "", "*"]
    done = guest("printf", "<%s>", *words, kernel=kernel)
    assert done.stdout == "".join(f"<{word}>" for word in words)
    odd = "a 'quoted' $value\nof two lines"
    done = guest("sh", "-c", 'printf "%s|%s" "$ODD" "$PWD"', kernel=kernel, ODD=odd)
    assert done.stdout == f"{odd}|{Path.cwd()}"


def test_options_reach_the_kernel(kernel: Path) -> None:
    guest("--time-travel", "--radios", "3", "--memory", "512M", "true", kernel=kernel)
    said = (kernel.parent / "said").read_text().splitlines()
    assert {"time-travel=inf-cpu", "mac80211_hwsim.radios=3", "mem=512M", "rootfstype=hostfs", "ro"} <= set(said)


def test_a_kernel_that_ends_early_is_one_error_after_its_log(kernel: Path) -> None:
    (kernel.parent / "crash").touch()
    done = guest("true", kernel=kernel)
    assert done.returncode == 125
    assert done.stderr == "log of the kernel\nhyroads guest: the guest ended before the command did\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_what_ends_the_script_ends_the_guest(kernel: Path, tmp_path: Path, number: int, status: int) -> None:
    environment = {**os.environ, "HYROADS_GUEST_KERNEL": str(kernel)}
    running = subprocess.Popen(
        [SCRIPT, "sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 5"], env=environment, stdin=subprocess.DEVNULL
    )
    until_s = time.monotonic() + 10
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until_s
        time.sleep(0.01)
    running.send_signal(number)
    assert running.wait(10) == status
    if number == signal.SIGKILL:
        # Nobody is left to clean up; the next run does.
        guest("true", kernel=kernel)
    else:
        pid = int((tmp_path / "pid").read_text())
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < until_s, "what ran in the guest outlives it"
            time.sleep(0.01)
    assert not folders_of(running.pid)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no command"),
        (("--speed", "true"), "no option '--speed'"),
        (("--radios",), "--radios needs a value"),
        (("--radios", "-1", "true"), "--radios is a number from 0 to 99, not '-1'"),
        (("--radios", "100", "true"), "--radios is a number from 0 to 99, not '100'"),
        (("--memory", "much", "true"), "--memory is a size such as 2G or 512M, not 'much'"),
        (("--share", "/nowhere", "true"), "--share: '/nowhere' is no folder that can be written to"),
        (("--see", "/nowhere", "true"), "--see: '/nowhere' is no folder"),
        (("--kernel", "vms", "true"), "--kernel is own, qemu or uml, not 'vms'"),
        (("--kernel", "vms"), "--kernel is own, qemu or uml, not 'vms'"),
        (("--kernel", "own", "--time-travel", "true"), "--time-travel is of User-Mode Linux only"),
        (("--build", "now"), "--build stands alone"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = guest(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hyroads guest: {words} (scripts/guest.sh --help)\n"


def test_without_a_kernel_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    done = guest("--kernel", "uml", "true", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith("make one: scripts/guest.sh --build\n")


def test_a_kernel_of_ones_own_must_be_a_program(tmp_path: Path) -> None:
    done = guest("true", kernel=tmp_path / "none")
    assert done.returncode == 125
    assert done.stderr == f"hyroads guest: HYROADS_GUEST_KERNEL: {tmp_path}/none is no program\n"


def tools(folder: Path, **scripts: str) -> str:
    """A PATH with the common tools and these scripts."""
    folder.mkdir()
    for name in ["bash", "dirname", "env", "sed", "sha256sum", "cut", "cat", "sort", "tail", "flock", "mkdir"]:
        (folder / name).symlink_to(shutil.which(name) or name)
    for name, text in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    return str(folder)


def test_a_build_needs_debian(tmp_path: Path) -> None:
    done = guest("--build", PATH=tools(tmp_path / "bin"), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 125 and len(done.stderr.splitlines()) == 1
    assert "linux-source-6.12, and this is not Debian" in done.stderr


def test_a_build_needs_the_source_package(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", dpkg_query="exit 1", apt_cache="exit 0", apt_get="exit 0")
    done = guest("--build", PATH=path, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 125
    assert done.stderr.startswith("hyroads guest: no package linux-source-6.12 in the package lists")


def test_a_kernel_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    candidate = "echo '  Candidate: 6.12.1-1'"
    path = tools(tmp_path / "bin", dpkg_query="exit 1", apt_cache=candidate, modprobe="exit 1")
    here = {"PATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    missing = guest("--kernel", "uml", "--which", **here)
    assert missing.returncode == 125
    # The folder's name is the hash of the configuration and the version.
    source = f". {SCRIPT.parent}/guest/build.sh; here={SCRIPT.parent}; configuration_hash"
    name = subprocess.run(["bash", "-c", source], capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path / "hyroads" / "guest" / f"{name}-6.12.1-1"
    folder.mkdir(parents=True)
    (folder / "linux").write_text(KERNEL)
    (folder / "linux").chmod(0o755)
    built = guest("--build", **here)
    assert (built.returncode, built.stdout) == (0, f"== kernel 6.12.1-1 is there: {folder}\n")
    assert guest("--kernel", "uml", "--which", **here).stdout == f"uml {folder}/linux\n"

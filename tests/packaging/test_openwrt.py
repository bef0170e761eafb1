"""The packages for OpenWrt: what is in them, and what their services start with a given configuration."""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy" / "openwrt"
NFPM = ROOT / "deploy" / "packages" / "nfpm.yaml"
# What rc.common and OpenWrt's functions.sh do, as far as the services use it: a section is NAME.OPTION in the
# environment, and what procd is told is printed, a line each.
LIBRARY = """
config_load() { [ "$1" = hyroads ]; }
config_get() { eval "$1=\\${uci_$2_$3:-\\$4}"; }
config_get_bool() { config_get "$@"; }
config_foreach() { for section in $(eval "echo \\$uci_sections_$2"); do "$1" "$section"; done; }
procd_open_instance() { echo open; }
procd_close_instance() { echo close; }
procd_set_param() { printf '%s' "$1"; shift; printf ' <%s>' "$@"; echo; }
procd_append_param() { printf '+'; procd_set_param "$@"; }
procd_add_reload_trigger() { echo "trigger $1"; }
"""
MAIN = {"main_enabled": "1", "main_node": "up", "main_controller": "192.0.2.1:6654", "main_token": "a secret"}


def start(service: str, folder: Path, **settings: str) -> tuple[int, list[str], str]:
    """Exit status, what procd was told, and complaints."""
    text = (SCRIPTS / f"{service}.init").read_text().replace("RUN=/var/run/hyroads", f"RUN={folder}/run")
    script = f"{LIBRARY}\n{text}\nstart_service; status=$?; service_triggers; exit $status"
    environment = {"PATH": "/usr/bin:/bin", **{f"uci_{key}": value for key, value in settings.items()}}
    done = subprocess.run(["dash", "-c", script], env=environment, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("service", ["hyroads-edge", "hyroads-ap"])
def test_nothing_runs_until_it_is_enabled(service: str, tmp_path: Path) -> None:
    assert start(service, tmp_path, **{**MAIN, "main_enabled": "0"}) == (0, ["trigger hyroads"], "")
    assert "option enabled '0'" in (SCRIPTS / "hyroads.config").read_text()


def test_three_lines_make_an_edge(tmp_path: Path) -> None:
    status, told, wrong = start("hyroads-edge", tmp_path, **MAIN, main_edge_options="--realtime --burst-ms 4")
    token = tmp_path / "run" / "edge.token"
    command = "/usr/bin/hyroads-edge --node up --controller 192.0.2.1:6654 --access tap:up-acc --network tap:up-net"
    assert (status, wrong) == (0, "")
    assert told == [
        "open",
        "command " + " ".join(f"<{word}>" for word in command.split()),
        f"+command <--token-file> <{token}>",
        "+command <--realtime> <--burst-ms> <4>",
        "respawn <3600> <2> <0>",
        "stderr <1>",
        "close",
        "trigger hyroads",
    ]
    assert token.read_text() == "a secret\n" and token.stat().st_mode & 0o077 == 0
    assert "--token-file" not in "".join(start("hyroads-edge", tmp_path, **{**MAIN, "main_token": ""})[1])


@pytest.mark.parametrize("node", ["", "a b", "$(reboot)", "a;b", "../x"])
def test_a_wrong_name_starts_nothing(node: str, tmp_path: Path) -> None:
    status, told, wrong = start("hyroads-edge", tmp_path, **{**MAIN, "main_node": node})
    assert status == 1 and "option node" in wrong and told == ["trigger hyroads"]


def test_the_agents_file_is_made_of_the_sections(tmp_path: Path) -> None:
    from hyroads.controller.access_point.config import parse

    radio = {"sections_interface": "r p", "r_name": "phy0-ap0", "r_technology": "wifi", "r_medium": "wifi-5180"}
    line = {"p_name": "eth1", "p_technology": "plc", "p_backend": "plc"}
    hostapd = {"sections_hostapd": "h", "h_socket": "/var/run/hostapd/phy0-ap0", "h_technology": "wifi"}
    status, told, wrong = start("hyroads-ap", tmp_path, **MAIN, **radio, **line, **hostapd)
    assert (status, wrong) == (0, "")
    file = tmp_path / "run" / "ap.json"
    assert f"<--config> <{file}> <--channel> <192.0.2.1:6654>" in told[1]
    config = parse(file.read_text(), str(file))
    assert config.node == "up" and file.stat().st_mode & 0o077 == 0
    assert [(each.name, each.technology, each.medium, each.backend) for each in config.interfaces] == [
        ("phy0-ap0", "wifi", "wifi-5180", "linux-wifi"),
        ("eth1", "plc", "plc", "plc"),
    ]
    assert config.hostapd[0].socket == "/var/run/hostapd/phy0-ap0"
    # No character ends a string before its time.
    start("hyroads-ap", tmp_path, **{**MAIN, "main_node": 'a"\\b'}, **radio)
    assert json.loads(file.read_text())["node"] == 'a"\\b'


def test_an_agent_without_radios_is_not_started(tmp_path: Path) -> None:
    assert start("hyroads-ap", tmp_path, **MAIN) == (0, ["trigger hyroads"], "")


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shell_scripts_are_clean() -> None:
    maintainer = "#!/bin/sh\nPART=a UNITS=b USERS=c SYSUSERS=d FOLDERS=e CACHES=f\n"
    maintainer += (ROOT / "deploy" / "packages" / "maintainer.sh").read_text()
    texts = [(SCRIPTS / name).read_text() for name in ("hyroads-edge.init", "hyroads-ap.init")]
    texts += [f"#!/bin/sh\nSERVICE=a\n{(SCRIPTS / 'prerm').read_text()}", maintainer]
    for text in texts:
        done = subprocess.run(["shellcheck", "-s", "dash", "-"], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def packed(out: Path, *options: str) -> Path:
    """The folder with the packages of both formats."""
    if not shutil.which("nfpm"):
        pytest.skip("nfpm is not installed")
    # Stands for the edge agent of scripts/cross.sh, which takes minutes to build.
    compiled = subprocess.run(
        ["gcc", "-static", "-x", "c", "-o", out / "edge", "-"], input="int main(void) { return 0; }", text=True
    )
    assert compiled.returncode == 0
    command = [sys.executable, str(ROOT / "scripts" / "packages.py"), "--out", str(out), "--formats", "ipk,apk"]
    command += ["--edge", str(out / "edge"), *options, "hyroads-edge", "hyroads-ap"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == ""
    return out


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of both formats."""
    return packed(tmp_path_factory.mktemp("openwrt"))


EDGE_FILES = {"./usr/bin/hyroads-edge": 0o755, "./etc/init.d/hyroads-edge": 0o755, "./etc/config/hyroads": 0o600}
AGENT_FILES = {"./usr/bin/hyroads-ap-agent", "./etc/init.d/hyroads-ap"}
MODULES = {f"./usr/lib/hyroads-ap/hyroads/controller/cli/{name}.py" for name in ("ap_agent", "box", "main")}


def check_agent_files(files: Mapping[str, int]) -> None:
    assert set(files) >= AGENT_FILES | MODULES
    assert not any(word in name for name in files for word in ("systemd", "scipy", "ryu", "rest/", "/man/"))


def test_what_is_in_the_packages_of_opkg(packages: Path) -> None:
    (edge,), (agent,) = packages.glob("hyroads-edge_*.ipk"), packages.glob("hyroads-ap_*_all.ipk")
    control, files = opened(edge)
    assert files == EDGE_FILES
    assert "/etc/config/hyroads" in control["./conffiles"]
    assert "Depends: kmod-tun" in control["./control"] and "systemd" not in control["./control"]
    # Debian's scripts need what OpenWrt does not have: systemd-sysusers, getent.
    assert set(control) == {"./control", "./conffiles", "./prerm"}
    control, files = opened(agent)
    check_agent_files(files)
    assert set(control) == {"./control", "./conffiles", "./prerm"}
    assert "python3-light" in control["./control"]


def test_what_is_in_the_packages_of_apk(packages: Path) -> None:
    (edge,), (agent,) = packages.glob("hyroads-edge_*.apk"), packages.glob("hyroads-ap_*_all.apk")
    control, files = opened_apk(edge)
    assert files == EDGE_FILES
    assert {"pkgname = hyroads-edge", "depend = kmod-tun"} <= set(control[".PKGINFO"].splitlines())
    assert set(control) == {".PKGINFO", ".pre-deinstall"}
    control, files = opened_apk(agent)
    check_agent_files(files)
    lines = control[".PKGINFO"].splitlines()
    assert {"arch = noarch", "depend = python3-light", f"depend = hyroads-edge={version()}"} <= set(lines)
    assert set(control) == {".PKGINFO", ".pre-deinstall"}


ARCHITECTURE = "x86_64"
DEPENDENCIES = ("kmod-tun", "python3-light", "python3-urllib", "python3-ctypes", "python3-openssl")
OPKG_CONFIG = "dest root /\nlists_dir ext /var/opkg-lists\narch all 1\narch {arch} 10\n"


class Router:
    """A root in which OpenWrt's own apk or opkg installs packages, with stand-ins for OpenWrt's."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        tool = {"apk": "apk", "ipk": "opkg"}[kind]
        if not shutil.which(tool) or os.geteuid() != 0:
            pytest.skip(f"{tool} is not installed, or this is not root")
        (root / "bin").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "var/lock").mkdir(parents=True)
        config = root / "etc/opkg.conf"
        config.write_text(OPKG_CONFIG.format(arch=ARCHITECTURE))
        self.command = ["opkg", "-f", str(config), "-o", str(root)]
        if kind == "apk":
            self.command = ["apk", "--root", str(root), "--no-network", "--allow-untrusted"]
            self.run("--initdb", "--arch", ARCHITECTURE, "add")
        self.install(*(self.stand_in(name) for name in DEPENDENCIES))

    def run(self, *words: str | Path) -> str:
        done = subprocess.run([*self.command, *map(str, words)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, *files: Path) -> None:
        self.run("add" if self.kind == "apk" else "install", *files)

    def stand_in(self, name: str) -> Path:
        """An empty package of that name."""
        about = {"name": name, "arch": "noarch" if self.kind == "apk" else "all", "version": "1.0"}
        described = self.root / f"{name}.json"
        described.write_text(json.dumps({**about, "maintainer": "a <a@b>", "description": name}))
        file = self.root / f"{name}.{self.kind}"
        subprocess.run(
            ["nfpm", "package", "-f", described, "-p", self.kind, "-t", file], check=True, capture_output=True
        )
        return file


@pytest.mark.parametrize("kind", ["apk", "ipk"])
def test_the_package_manager_of_openwrt_installs_upgrades_and_removes(kind: str, tmp_path: Path) -> None:
    router = Router(kind, tmp_path / "root")
    for version in ("1.0.0", "1.1.0"):
        (tmp_path / version).mkdir()
        packed(tmp_path / version, "--arch", ARCHITECTURE, "--version", version)
    # What the packages' scripts do is tested elsewhere; apk starts them by the shell of the root.
    shutil.copy(tmp_path / "1.0.0/edge", router.root / "bin/sh")
    router.install(*(tmp_path / "1.0.0").glob(f"*.{kind}"))
    settings = router.root / "etc/config/hyroads"
    assert settings.read_text() == (SCRIPTS / "hyroads.config").read_text()
    settings.write_text("config hyroads 'main'\n")
    router.install(*(tmp_path / "1.1.0").glob(f"*.{kind}"))
    assert settings.read_text() == "config hyroads 'main'\n"
    home = router.root / "usr/lib/hyroads-ap"
    (found,) = importlib.metadata.distributions(path=[str(home)])
    assert (found.name, found.version) == ("hyroads", "1.1.0")
    program = router.root / "usr/bin/hyroads-edge"
    assert program.stat().st_mode & 0o777 == 0o755
    router.run("del" if kind == "apk" else "remove", "hyroads-ap", "hyroads-edge")
    assert not program.exists() and not list(router.root.glob("etc/init.d/*"))


@pytest.mark.parametrize("upgrade", [False, True])
@pytest.mark.parametrize("package", ["hyroads-edge", "hyroads-ap"])
def test_a_service_ends_with_its_package(packages: Path, package: str, upgrade: bool, tmp_path: Path) -> None:
    (ipk,), (apk,) = packages.glob(f"{package}_*.ipk"), packages.glob(f"{package}_*.apk")
    scripts = opened(ipk)[0]["./prerm"], opened_apk(apk)[0][".pre-deinstall"]
    assert scripts[0] == scripts[1]
    service = tmp_path / package
    service.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/said\n')
    service.chmod(0o755)
    script = scripts[0].replace("/etc/init.d", str(tmp_path))
    environment = {"PATH": "/usr/bin:/bin", **({"PKG_UPGRADE": "1"} if upgrade else {})}
    done = subprocess.run(["dash", "-c", script, "/lib/apk/exec/any-name"], env=environment, timeout=30)
    said = tmp_path / "said"
    assert done.returncode == 0 and (said.read_text().split() if said.exists() else []) == (
        [] if upgrade else ["stop", "disable"]
    )


# Modules of Python that OpenWrt ships in packages of their own, of those that HyRoads' modules or theirs may import.
SPLIT_OFF = {
    "asyncio": "python3-asyncio",
    "ctypes": "python3-ctypes",
    "decimal": "python3-decimal",
    "email": "python3-email",
    "logging": "python3-logging",
    "multiprocessing": "python3-multiprocessing",
    "ssl": "python3-openssl",
    "unittest": "python3-unittest",
    "urllib": "python3-urllib",
    "uuid": "python3-uuid",
    "xml": "python3-xml",
}
IMPORT_ALL = """
import sys
missing = set(sys.argv[1].split(","))
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"OpenWrt's Python has no {name}", name=name)
sys.meta_path.insert(0, Missing())
for name in missing & set(sys.modules):
    del sys.modules[name]
import importlib
for name in ("access_point.channel", "access_point.backends", "access_point.doctor_facts", "framework.tls_client",
             "framework.service_manager", "cli.ap_agent", "cli.box", "cli.main"):
    importlib.import_module(f"hyroads.controller.{name}")
"""


def test_the_agent_needs_no_part_of_python_that_its_package_does_not_name(packages: Path) -> None:
    (agent,) = packages.glob("hyroads-ap_*_all.ipk")
    depends = opened(agent)[0]["./control"]
    missing = ",".join(module for module, package in SPLIT_OFF.items() if package not in depends)
    with tarfile.open(agent) as outer, tarfile.open(fileobj=io.BytesIO(read(outer, "./data.tar.gz"))) as inner:
        inner.extractall(packages / "root", filter="data")
    home = packages / "root/usr/lib/hyroads-ap"
    command = [sys.executable, "-S", "-c", IMPORT_ALL, missing]
    environment = {"PYTHONPATH": str(home), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# What OpenWrt's build system does with a package's Makefile, as far as ours uses it.
BUILD_SYSTEM = {
    "rules.mk": """
INSTALL_DIR:=install -d -m0755
INSTALL_BIN:=install -m0755
INSTALL_CONF:=install -m0600
CP:=cp -fpR
""",
    "include/package.mk": """
PKG_BUILD_DIR:=$(TOPDIR)/build
PKG_INSTALL_DIR:=$(TOPDIR)/installed
define BuildPackage
$(eval $(Package/$(1)))
all:
	@echo DEPENDS $(DEPENDS)
	@echo CONFFILES $(Package/$(1)/conffiles)
	$$(call Build/Prepare)
	$$(call Build/Compile)
	$$(call Package/$(1)/install,$(TOPDIR)/root)
endef
""",
    "feeds/packages/lang/rust/rust-package.mk": """
define Build/Compile/Cargo
	test -f $(PKG_BUILD_DIR)/$(1)/Cargo.toml
	install -D /bin/true $(PKG_INSTALL_DIR)/$(subst --bin ,bin/,$(2))
endef
""",
}


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_the_feed_builds_the_same_files_from_this_checkout(tmp_path: Path) -> None:
    for name, text in BUILD_SYSTEM.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # A feed of "src-link" is a link.
    (tmp_path / "feed").symlink_to(SCRIPTS / "feed")
    folders = [f"TOPDIR={tmp_path}", f"INCLUDE_DIR={tmp_path}/include"]
    command = ["make", "-C", tmp_path / "feed/hyroads-edge", *folders, "all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "root"
    found = {f"./{file.relative_to(root)}": file.stat().st_mode & 0o777 for file in root.rglob("*") if file.is_file()}
    assert found == EDGE_FILES
    facts = (line.partition(" ") for line in done.stdout.splitlines())
    check_facts({name: rest for name, _, rest in facts}, root)
    names = {file.name for file in (ROOT / "dataplane").iterdir()} & {"Cargo.toml", "Cargo.lock", "src", "benches"}
    assert {file.name for file in (tmp_path / "build").iterdir()} == names
    assert f"PKG_VERSION:={version()}\n" in (SCRIPTS / "feed/hyroads-edge/Makefile").read_text()


def check_facts(facts: Mapping[str, str], root: Path) -> None:
    """The feed against what scripts/packages.py gives to nfpm for both formats."""
    (edge,) = (each for each in yaml.safe_load_all(NFPM.read_text()) if each["name"] == "hyroads-edge")
    depends = {word.lstrip("+") for word in facts["DEPENDS"].split()}
    for kind in ("ipk", "apk"):
        # What the packages hold is static, and has its own OpenSSL.
        assert depends == {*edge["overrides"][kind]["depends"], "libopenssl"}
        contents = [each for each in edge["contents"] if each.get("packager") == kind]
        assert facts["CONFFILES"].split() == [
            each["dst"] for each in contents if each.get("type", "").startswith("config")
        ]
        for each in contents:
            file = root / each["dst"].lstrip("/")
            assert file.read_bytes() == (ROOT / each["src"]).read_bytes()
            assert file.stat().st_mode & 0o777 == each["file_info"]["mode"]
        assert {root / each["dst"].lstrip("/") for each in contents} | {root / "usr/bin/hyroads-edge"} == {
            file for file in root.rglob("*") if file.is_file()
        }


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@pytest.mark.skipif(not shutil.which("nfpm"), reason="nfpm is not installed")
def test_a_program_that_needs_libraries_is_not_for_openwrt(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "packages.py"), "--out", str(tmp_path), "--formats", "ipk,apk"]
    done = subprocess.run([*command, "--edge", "/bin/sh", "hyroads-edge"], capture_output=True, text=True, timeout=300)
    assert done.stderr.count("not static") == 2 and not list(tmp_path.glob("hyroads*"))


def opened(package: Path) -> tuple[dict[str, str], dict[str, int]]:
    """The control files with their texts, and the files with their modes."""
    with tarfile.open(package) as outer:
        assert read(outer, "./debian-binary") == b"2.0\n"
        control, data = (io.BytesIO(read(outer, f"./{part}.tar.gz")) for part in ("control", "data"))
    with tarfile.open(fileobj=control) as inner:
        texts = {dotted(each.name): read(inner, each.name).decode() for each in inner.getmembers() if each.isfile()}
    with tarfile.open(fileobj=data) as inner:
        assert {each.uid for each in inner.getmembers()} == {0}
        return texts, {dotted(each.name): each.mode & 0o777 for each in inner.getmembers() if each.isfile()}


def opened_apk(package: Path) -> tuple[dict[str, str], dict[str, int]]:
    """As ``opened``: an .apk is two streams of gzip, which together are one archive; control files begin with a dot."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(package.read_bytes())), ignore_zeros=True) as archive:
        members = [each for each in archive.getmembers() if each.isfile()]
        assert {each.uid for each in members} == {0}
        # apk-tools 3 refuses a package that has more in a mode, also in that of a folder.
        assert all(each.mode <= 0o7777 and each.name for each in archive.getmembers())
        control = [each for each in members if each.name.startswith(".")]
        texts = {each.name: read(archive, each.name).decode() for each in control}
        return texts, {dotted(each.name): each.mode & 0o777 for each in members if each not in control}


def dotted(name: str) -> str:
    return "./" + name.removeprefix("./").lstrip("/")


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()

"""Real FreeRADIUS servers with certificates of their own, for tests of 802.1X; and what a RADIUS server asks by itself.

FreeRADIUS is the system's, or that which ``scripts/bootstrap.sh --dev`` has unpacked: nothing of it runs as a service.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
UNPACKED = Path(__file__).parents[2] / ".venv" / "freeradius"
SECRET = "testing-secret-of-two-servers"
PASSWORDS = {"alice": "wonderland", "bob": "the-builder", "often": "again-and-again", "dave": "not-at-n0"}
REPLIES = {
    "bob": "Session-Timeout := 4",
    "often": "Session-Timeout := 3, Termination-Action := RADIUS-Request",
}
"""What the server says besides: bob's session ends, that of "often" goes on if it is authenticated anew."""


def _installed() -> Path | None:
    found = shutil.which("freeradius", path=PROGRAMS)
    return Path(found) if found is not None else None


def missing() -> str:
    """What is not there to run FreeRADIUS; empty if all is."""
    if os.geteuid() != 0:
        return "needs root"
    programs = [
        name for name in ("hostapd", "wpa_supplicant", "openssl", "ip") if not shutil.which(name, path=PROGRAMS)
    ]
    if programs:
        return f"needs {', '.join(programs)}"
    there = _installed() is not None or (UNPACKED / "usr/sbin/freeradius").exists()
    return "" if there else "needs FreeRADIUS (scripts/bootstrap.sh --dev unpacks Debian's)"


def _program() -> tuple[list[str], dict[str, str], str]:
    """The command with its dictionaries, its environment, and the folder of its modules."""
    installed = _installed()
    if installed is not None:
        return [str(installed)], dict(os.environ), "/usr/lib/freeradius"
    libraries = UNPACKED / "usr/lib"
    machine = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    path = [libraries / "freeradius", libraries / machine, UNPACKED / "lib" / machine]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, path))}
    command = [str(UNPACKED / "usr/sbin/freeradius"), "-D", str(UNPACKED / "usr/share/freeradius")]
    return command, environment, str(libraries / "freeradius")


class Certificates:
    """An authority, the servers' certificate, and one for a user ``carol``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        self._openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=lab", "-days", "2")
        for name, subject in (("server", "/CN=radius.lab"), ("carol", "/CN=carol")):
            files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
            self._openssl("req", *curve, *files, "-subj", subject)
            by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
            self._openssl("x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem", "-days", "2")

    def _openssl(self, *words: str) -> None:
        subprocess.run(("openssl", *words), cwd=self.folder, check=True, capture_output=True, timeout=30)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


@dataclass
class RadiusLabServer:
    """One FreeRADIUS on loopback of a namespace."""

    namespace: str
    folder: Path
    certificates: Certificates
    port: int
    secret: str = SECRET
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command, environment, modules = _program()
        settings = self.folder / f"radius-{self.port}"
        settings.mkdir(exist_ok=True)
        (settings / "radiusd.conf").write_text(self._settings(settings, modules))
        users = (
            f'{name} Cleartext-Password := "{password}"\n    User-Name := "{name}"'
            + (f", {REPLIES[name]}" if name in REPLIES else "")
            for name, password in PASSWORDS.items()
        )
        (settings / "users").write_text("\n".join(users) + "\n")
        self.log = settings / "log"
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            words = ["ip", "netns", "exec", self.namespace, *command, "-f", "-xx", "-l", "stdout", "-d", str(settings)]
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        until_s = time.monotonic() + 30
        while b"Ready to process requests" not in self.log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"no FreeRADIUS:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As a power cut would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def count(self, what: str) -> int:
        """How often the log has this text."""
        return self.log.read_text(errors="replace").count(what)

    def _settings(self, settings: Path, modules: str) -> str:
        files = self.certificates
        return f"""
libdir = {modules}
logdir = {settings}
run_dir = {settings}
correct_escapes = true
max_request_time = 5
cleanup_delay = 1
max_requests = 256
hostname_lookups = no
log {{
    destination = stdout
    auth = yes
}}
security {{
    status_server = yes
    allow_vulnerable_openssl = yes
}}
thread pool {{
    start_servers = 1
    max_servers = 2
    min_spare_servers = 1
    max_spare_servers = 2
    max_requests_per_server = 0
}}
client lab {{
    ipaddr = 127.0.0.1
    secret = {self.secret}
    require_message_authenticator = yes
}}
modules {{
    files {{
        usersfile = {settings}/users
        key = "%{{User-Name}}"
    }}
    mschap {{
    }}
    detail {{
        filename = {settings}/accounting
    }}
    eap {{
        default_eap_type = peap
        timer_expire = 60
        tls-config lab {{
            private_key_file = {files["server.key"]}
            certificate_file = {files["server.pem"]}
            ca_file = {files["ca.pem"]}
            cipher_list = "DEFAULT"
            ecdh_curve = "prime256v1"
            tls_min_version = "1.2"
            tls_max_version = "1.2"
        }}
        tls {{
            tls = lab
        }}
        peap {{
            tls = lab
            default_eap_type = mschapv2
            use_tunneled_reply = yes
            virtual_server = inner
        }}
        mschapv2 {{
        }}
    }}
}}
server lab {{
    listen {{
        type = auth
        ipaddr = 127.0.0.1
        port = {self.port}
    }}
    listen {{
        type = acct
        ipaddr = 127.0.0.1
        port = {self.port + 1}
    }}
    authorize {{
        eap
    }}
    authenticate {{
        eap
    }}
    accounting {{
        detail
    }}
}}
server inner {{
    authorize {{
        files
        mschap
        eap
    }}
    authenticate {{
        Auth-Type MS-CHAP {{
            mschap
        }}
        eap
    }}
}}
"""


def supplicant_text(user: str, certificates: Certificates, *, password: str | None = None) -> str:
    """A file for wpa_supplicant on a cable: PEAP with a password, or EAP-TLS with the user's certificate."""
    lines = ["key_mgmt=IEEE8021X", "eapol_flags=0", f'ca_cert="{certificates["ca.pem"]}"']
    if password is None:
        files = (f'client_cert="{certificates[f"{user}.pem"]}"', f'private_key="{certificates[f"{user}.key"]}"')
        lines += ["eap=TLS", f'identity="{user}"', *files]
    else:
        lines += ["eap=PEAP", f'identity="{user}"', 'anonymous_identity="anonymous"', f'password="{password}"']
        lines.append('phase2="auth=MSCHAPV2"')
    return "ap_scan=0\nnetwork={\n" + "\n".join(lines) + "\n}\n"


def disconnect_request(port: int, mac: str, secret: str = SECRET) -> int:
    """What a RADIUS server sends to end a session (RFC 5176, section 2.1): the code of the answer (41: done)."""
    station = mac.upper().replace(":", "-").encode()
    attributes = _attribute(31, station) + _attribute(55, struct.pack("!I", int(time.time())))
    head = struct.pack("!BBH", 40, 7, 20 + len(attributes))
    by = hashlib.md5(head + bytes(16) + attributes + secret.encode()).digest()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(3)
        link.sendto(head + by + attributes, ("127.0.0.1", port))
        return link.recv(4096)[0]


def _attribute(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value) + 2]) + value


def ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes of ours that still run."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

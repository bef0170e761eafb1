"""``hyroads identity``: tokens and certificates of devices and controllers, in files (docs/how-to/identities.md)."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.identity import CertificateRole

from .main import Argument, Command, add_all, argument, either

if TYPE_CHECKING:
    from hyroads.controller.files.authority import Authority, IdentityFile

DAYS = 825
IDENTITIES = "identities.json"
Report = dict[str, Any]


def _authority(args: argparse.Namespace) -> Iterator[Report]:
    from hyroads.controller.files.authority import REVOKED, Authority

    is_new = not (Path(args.folder) / "ca.key").exists()
    authority = Authority.of(Path(args.folder), make=True)
    if not (authority.folder / REVOKED).exists():
        authority.revoke(None)
    yield {"authority": str(Path(args.folder) / "ca.pem"), "new": is_new}


def _server(args: argparse.Namespace) -> Iterator[Report]:
    """A controller, a member of etcd, a slicer: a server."""
    from hyroads.controller.files.authority import Authority

    folder = Path(args.folder)
    name, roles = args.names[0], _roles(args) or [CertificateRole.CONTROLLER]
    if "/" in name or name.startswith("."):
        raise ConfigError("NAME", "", f"expected a host or an address, got {name[:64]!a}")
    # One machine may have a certificate of each role.
    file = name if roles == [CertificateRole.CONTROLLER] else "-".join((name, *roles))
    where = TlsFiles(str(folder / f"{file}.key"), str(folder / f"{file}.pem"))
    is_new = Authority.of(folder).issue(args.names, where, roles=roles, days=args.days, renew=args.renew)
    yield {"certificate": where.certificate, "key": where.key, "new": is_new}


def _roles(args: argparse.Namespace) -> list[CertificateRole]:
    return sorted({CertificateRole(role) for role in args.role or ()})


def _renew(args: argparse.Namespace) -> Iterator[Report]:
    from hyroads.controller.files.authority import AUTHORITY, Authority
    from hyroads.controller.files.tls import certificate_facts

    authority = Authority.of(Path(args.folder))
    found = [Path(name) for name in args.certificates] or sorted(authority.folder.rglob("*.pem"))
    for path in found:
        key = path.with_suffix(".key")
        is_listed = bool(args.certificates)
        if not is_listed and (path.stem == AUTHORITY or not key.exists()):
            continue
        known = certificate_facts(path.read_bytes()).roles
        roles = _roles(args) or [role for role in CertificateRole if role in known] or [_role_of(path)]
        yield {"certificate": str(path), "roles": list(roles),
               "new": authority.renew(TlsFiles(str(key), str(path)), roles, days=args.days)}  # fmt: skip


def _role_of(certificate: Path) -> CertificateRole:
    """What a certificate of 0.3 was made for: those versions put nodes, clients and servers in different places."""
    if certificate.name != "node.pem":
        return CertificateRole.CONTROLLER
    has_token = any(certificate.parent.glob("*.token"))
    return CertificateRole.NODE if has_token else CertificateRole.CLIENT


def _revoke(args: argparse.Namespace) -> Iterator[Report]:
    from hyroads.controller.files.authority import REVOKED, Authority

    authority = Authority.of(Path(args.folder))
    for name in args.names:
        yield {"name": name, "revoked": authority.revoke(name), "list": str(authority.folder / REVOKED)}


def _nodes(args: argparse.Namespace) -> Iterator[Report]:
    from hyroads.controller.core.addressing import Addressing
    from hyroads.controller.core.identity import DEVICE_ROLES, dpid_name
    from hyroads.controller.files.authority import Authority
    from hyroads.controller.files.documents import read_file

    network = read_file(args.network, measured=True)
    dpids: Mapping[str, int] = Addressing.of(network, args.network).dpid
    unknown = [node for node in args.nodes if node not in network.nodes]
    if unknown:
        raise ConfigError(args.network, "nodes", f"no node {unknown[0][:64]!a}")
    chosen = args.nodes or [node for node in network.nodes if node in dpids]
    authority, known = Authority.of(Path(args.folder)), _identities(args)
    for node in chosen:
        names = [node, *([dpid_name(dpids[node])] if node in dpids else [])]
        roles = [role for role in DEVICE_ROLES if role != "agent" or network.nodes[node].agent]
        yield _of_node(authority, known, names, roles, args)
    known.save()


def _of_node(
    authority: Authority, known: IdentityFile, names: list[str], roles: list[str], args: argparse.Namespace
) -> Report:
    from hyroads.controller.files.authority import DeviceFiles

    node, files = names[0], DeviceFiles.of(authority.folder, names[0])
    files.folder.mkdir(mode=0o700, exist_ok=True)
    new = [f"{role}.token" for role in roles if known.give(role, node, files.token(role), renew=args.renew)]
    if new:
        # Who is interrupted later has tokens that the controller knows.
        known.save()
    if authority.issue(names, files.tls, roles=[CertificateRole.NODE], days=args.days, renew=args.renew):
        new.append("node.pem")
    shutil.copyfile(authority.folder / "ca.pem", files.folder / "ca.pem")
    return {"node": node, "folder": str(files.folder), "new": new}


def _clients(args: argparse.Namespace) -> Iterator[Report]:
    """Multi-homed clients have their tokens in the controller's settings."""
    from hyroads.controller.files.authority import Authority, DeviceFiles

    authority = Authority.of(Path(args.folder))
    for name in args.names:
        files = DeviceFiles.of(authority.folder, name)
        files.folder.mkdir(mode=0o700, exist_ok=True)
        roles = [CertificateRole.CLIENT]
        is_new = authority.issue([name], files.tls, roles=roles, days=args.days, renew=args.renew)
        shutil.copyfile(authority.folder / "ca.pem", files.folder / "ca.pem")
        yield {"node": name, "folder": str(files.folder), "new": ["node.pem"] * is_new}


def _remove(args: argparse.Namespace) -> Iterator[Report]:
    known = _identities(args)
    for node in args.nodes:
        yield {"node": node, "removed": known.remove(node)}
    known.save()


def _identities(args: argparse.Namespace) -> IdentityFile:
    from hyroads.controller.files.authority import IdentityFile
    from hyroads.controller.settings.clients import parse_identities

    path = Path(args.identities or Path(args.folder) / IDENTITIES)
    return IdentityFile(path, parse_identities(str(path)) if path.exists() else {})


_FOLDER = argument("--folder", default=".", metavar="DIR", help="where everything is (default: here)")
_FILE = argument("--identities", metavar="FILE", help=f"the controller's file (default: {IDENTITIES} in the folder)")
_DAYS = argument("--days", type=int, default=DAYS, help="how long a certificate is good (default %(default)s)")
_RENEW = argument("--renew", action="store_true", help="make new ones also where there are some that are good")
_SERVER_ROLES = [role.value for role in CertificateRole if role not in (CertificateRole.NODE, CertificateRole.CLIENT)]
_VERBS: dict[str, tuple[str, Callable[[argparse.Namespace], Iterator[Report]], tuple[Argument, ...]]] = {
    "authority": ("make the authority of this network's certificates, if there is none", _authority, (_FOLDER,)),
    "server": (
        "a certificate of a controller, or with --role of another server",
        _server,
        (
            argument(
                "names",
                nargs="+",
                metavar="NAME",
                help="all hosts and addresses by which it is dialled, and its ha.name or region",
            ),
            argument(
                "--role",
                action="append",
                choices=_SERVER_ROLES,
                help="what it may be, also several times (default: controller)",
            ),
            _FOLDER,
            _DAYS,
            _RENEW,
        ),
    ),
    "node": (
        "tokens and a certificate of nodes, in a folder of each",
        _nodes,
        (
            argument("--network", required=True, metavar="FILE", help="network file"),
            either(
                argument("nodes", nargs="*", default=[], metavar="NODE", help="nodes of the network file"),
                argument("--all", action="store_true", help="all of them"),
                required=True,
            ),
            _FOLDER,
            _FILE,
            _DAYS,
            _RENEW,
        ),
    ),
    "client": (
        "certificates of multi-homed clients, in a folder of each",
        _clients,
        (argument("names", nargs="+", metavar="CLIENT", help="ids in the setting clients"), _FOLDER, _DAYS, _RENEW),
    ),
    "renew": (
        "sign certificates again that have no role or end soon, for the same keys and names",
        _renew,
        (
            argument(
                "certificates", nargs="*", default=[], metavar="FILE", help="certificates (default: all of the folder)"
            ),
            argument(
                "--role",
                action="append",
                choices=[role.value for role in CertificateRole],
                help="roles instead of those they have; without: of nodes, clients, and controllers for servers",
            ),
            _FOLDER,
            _DAYS,
        ),
    ),
    "revoke": (
        "add all certificates of these names to revoked.pem, which the setting revoked names",
        _revoke,
        (argument("names", nargs="+", metavar="NAME", help="nodes, clients, or the first names of servers"), _FOLDER),
    ),
    "remove": (
        "nodes have no tokens any more: after a reload the controller lets them go",
        _remove,
        (argument("nodes", nargs="+", metavar="NODE", help="their ids"), _FOLDER, _FILE),
    ),
}


class IdentityCommand(Command):
    """One verb a kind of identity."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs with their arguments."""
        chosen = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
        for name, (text, _, arguments) in _VERBS.items():
            each = chosen.add_parser(name, help=text, description=text)
            add_all(each, arguments)
            each.add_argument("--json", action="store_true", help="print JSON, one document a line")


def _run(args: argparse.Namespace) -> int:
    try:
        for report in _VERBS[args.verb][1](args):
            print(json.dumps(report) if args.json else _line(report), flush=True)
    except OSError as error:
        raise ConfigError(str(error.filename or args.folder), "", str(error.strerror)) from error
    return 0


def _line(report: Report) -> str:
    if "revoked" in report:
        return f"{report['name']}: {report['revoked']} certificates more in {report['list']}"
    if "roles" in report:
        what = f"has {', '.join(report['roles'])} now" if report["new"] else "is good already"
        return f"{report['certificate']}: {what}"
    if "removed" in report:
        return f"{report['node']}: {report['removed']} tokens removed"
    if "node" in report:
        return f"{report['node']}: {report['folder']}: {', '.join(report['new']) or 'nothing'} new"
    where = report.get("authority") or f"{report['certificate']}, {report['key']}"
    return f"{where}: {'new' if report['new'] else 'is good already'}"


COMMAND = IdentityCommand(
    "Make tokens and certificates by which the controller knows devices, and devices know the controller. Files with "
    "secrets have mode 0600; of tokens the controller gets hashes only (docs/how-to/identities.md).",
    _run,
)

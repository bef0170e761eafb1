"""An emulated network as a whole: Open vSwitch, Mininet network, shared medium, agents, controller."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Contention, Network
from hyroads.rest.client import Client, ClientError

from .access_points import RadioChannel, SnmpAgents, association_agents
from .control_sockets import EdgeClient
from .etcd import Etcd, etcd_ports
from .guest_network import GuestNetwork
from .hybrid import OpenVSwitch
from .programs import HYROADS, EmulationError, Program, listens, run, wait_until
from .run_directory import namespace_name, network_document
from .waypoints import clients_of, gateways, wait_for_waypoint, waypoint

if TYPE_CHECKING:
    from .hybrid import HybridNet, HybridNode
    from .radio_cells import RadioCell

FROM_FILE, IDEAL, CSMA = "file", "ideal", "csma"
_POWER_LINE = "plc"


def with_contention(network: Network, wanted: str) -> Network:
    """The network with the contention of its file, with ideal media, or with CSMA/CA on all that are shared."""
    if wanted == FROM_FILE:
        return network
    if wanted == IDEAL:
        return replace(network, contention={})
    if wanted == CSMA:
        shared = (k for k in network.technologies if k not in network.unshared)
        return replace(network, contention={k: _standard(k) for k in shared})
    raise EmulationError(f"contention {wanted!a}: expected {FROM_FILE}, {IDEAL} or {CSMA}")


def _standard(technology: str) -> Contention:
    """Whose CSMA/CA: power line by its name, else WiFi."""
    return Contention.CSMA_1901 if technology.startswith(_POWER_LINE) else Contention.CSMA_802_11


OPENFLOW_PORT, SLICER_PORT = 6653, 6633
AGENTS_PORT, REST_PORT, PEER_PORT, REGION_PORT = 6654, 8080, 6655, 6658
CONTROLLER_START_TIMEOUT_S = 30.0
RESTART_AFTER_S = 1.0
# A controller has a machine of its own; here switches and traffic of the whole network would take its processor.
CONTROLLER_NICENESS = -10
DEFAULT_MARGIN = 0.05
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")

Say = Callable[[str], None]


PORTS_APART = 100


def controller_ports(number: int) -> dict[str, int]:
    """Where a controller listens, by what for; the first has number 0 and the usual ports."""
    usual = {"openflow": OPENFLOW_PORT, "agents": AGENTS_PORT, "rest": REST_PORT, "peer": PEER_PORT}
    return {what: port + PORTS_APART * number for what, port in usual.items()}


def _region_port(number: int) -> int:
    """Where the controllers of other regions dial one of several of a region."""
    return REGION_PORT + PORTS_APART * number


def controller_name(number: int) -> str:
    """What one of several controllers is called."""
    return f"c{number + 1}"


def _serves(program: Program, port: int) -> bool:
    """Whether a program accepts connections; EmulationError if it has ended."""
    if not program.alive:
        raise EmulationError(program.failure())
    return listens(port)


@dataclass(frozen=True)
class EmulationOptions:
    """How to run: ``settings`` go into the controller's settings file, ``medium`` into the medium's options."""

    controller: bool = True
    realtime: bool = True
    settings: dict[str, object] = field(default_factory=dict)
    medium: dict[str, object] = field(default_factory=dict)
    snmp: bool = False
    wireless: bool = False
    """With ``snmp``: access points serve their wireless configuration."""
    measured: bool = False
    """The controller is told by emulated radios what they measure, with ``errors`` (``EstimateErrors``)."""
    discover: bool = False
    """With ``measured``: not even of the links."""
    errors: dict[str, float] = field(default_factory=dict)
    radios: bool = False
    """Emulated radios tell busy times, whatever capacities come from; ``measured`` has them anyway."""
    contention: str = FROM_FILE
    """What contention costs on the media: what the network file says, ``ideal``, or ``csma``."""
    mtu: int | None = None
    """Of ports on media where the network file does not say it, in bytes; None: ``MEDIA_MTU``."""
    sliced: bool = False
    """A slicer stands between the switches and the controller, whose slice is production."""
    radio: bool = False
    """Technologies with ``radio`` in the network file run on emulated 802.11 radios of the kernel."""
    radio_medium: bool = False
    """With ``radio``: our medium carries their frames, so that what the file says of their links holds."""
    guest: bool = False
    """A guest network at the gateway, with one guest and a host outside."""
    controllers: int = 1
    """So many controllers are dialled by switches, agents and radios, at the ports that :func:`controller_ports`
    gives. Without ``etcd_members`` only the first is started here."""
    etcd_members: int = 0
    """A private etcd of so many members, by which the controllers stand by for each other."""
    regions: bool = False
    """Each region of the network file has controllers of its own: ``controllers`` is their number in all, a multiple of
    that of regions; those of each region follow each other. Several of one region need ``etcd_members``.
    """


def with_mtu(network: Network, mtu: int | None) -> Network:
    """Ports of technologies whose MTU (bytes) the network file does not say have this one; None: the default."""
    if mtu is None:
        return network
    return replace(network, mtu={**dict.fromkeys(network.technologies, mtu), **network.mtu})


class Emulation:
    """One running network; everything lives in the namespaces of the calling process."""

    def __init__(self, network: Network, name: str, directory: Path, options: EmulationOptions) -> None:
        self.network = network = with_mtu(with_contention(network, options.contention), options.mtu)
        self.name = name
        self.directory = directory
        self.options = options
        self.addressing = Addressing.of(network)
        self.switch = OpenVSwitch(directory / "ovs")
        # Several threads ask, and the controller may be started again: a connection for each request.
        self.rest = Client(self.rest_urls, tries=1, timeout_s=10.0, keep_alive=False)
        self.net: HybridNet | None = None
        self.etcd = self._make_etcd()
        self.controller = self._make_controller()
        self.controllers = [self.controller, *self._make_standbys()]
        """Those that are started here."""
        self.slicer = self._make_slicer() if options.sliced and options.controller else None
        self.shared: Any = None
        self.snmp: SnmpAgents | None = None
        self.radios: RadioChannel | None = None
        self.cells: dict[str, RadioCell] = {}
        """Technologies on 802.11 radios."""
        self.associations: dict[str, Program] = {}
        """By node: what tells the controller who is associated with its access points."""
        self.guest_network: GuestNetwork | None = None
        self.waypoints: dict[str, Program] = {}
        """By gateway: what serves multi-homed clients there."""
        self._died_s: dict[str, float] = {}

    @property
    def rest_urls(self) -> list[str]:
        """Where controllers answer REST, inside."""
        several = self.options.etcd_members or self.options.regions
        count = self.options.controllers if several else 1
        return [f"http://127.0.0.1:{controller_ports(number)['rest']}" for number in range(count)]

    def _make_etcd(self) -> Etcd | None:
        if not (self.options.etcd_members and self.options.controller):
            return None
        return Etcd(self.directory / "etcd", etcd_ports(self.options.etcd_members))

    def _make_standbys(self) -> list[Program]:
        """The other controllers: as the first, with ports and a name of their own."""
        if self.etcd is None and not self.options.regions:
            return []
        first = json.loads((self.directory / "controller.json").read_text(encoding="utf-8"))
        numbers = range(1, self.options.controllers)
        if self.options.regions:
            return [self._program("controller", {**first, **self._of_region(n)}, f"-{n + 1}") for n in numbers]
        return [self._program("controller", {**first, **self._standing_by(n)}, f"-{n + 1}") for n in numbers]

    def _standing_by(self, number: int) -> dict[str, Any]:
        """What a controller's settings say of itself."""
        if self.etcd is None:
            return {}
        ports = controller_ports(number)
        advertise = {"rest": f"http://127.0.0.1:{ports['rest']}", "peer": f"127.0.0.1:{ports['peer']}"}
        return {
            "listen": {what: {"port": port} for what, port in ports.items()},
            "ha": {"etcd": self.etcd.urls, "name": controller_name(number), "advertise": advertise},
        }

    def controllers_of(self, region: str) -> range:
        """Which controllers are those of a region, by their numbers."""
        each, position = self.options.controllers // len(self.network.regions), list(self.network.regions).index(region)
        return range(position * each, (position + 1) * each)

    def _of_region(self, number: int) -> dict[str, Any]:
        """What the settings of a region's controller say of itself and of the others."""
        ours = {name: self.controllers_of(name) for name in self.network.regions}
        own = next(name for name, numbers in ours.items() if number in numbers)
        several = self.etcd is not None
        at = {n: _region_port(n) if several else controller_ports(n)["peer"] for n in range(self.options.controllers)}
        peers = {name: [{"port": at[n]} for n in numbers] for name, numbers in ours.items() if name != own}
        found: dict[str, Any] = {"listen": {what: {"port": port} for what, port in controller_ports(number).items()}}
        found["region"] = {"name": own, "peers": peers}
        if several:
            found["region"]["listen"] = {"port": at[number]}
            return {**found, **self._standing_by(number)}
        return {**found, "state_file": str(self.directory / f"controller-state-{number + 1}.json")}

    def _controller_of(self) -> dict[str, tuple[range, str]] | None:
        """By node: the numbers of its region's controllers, and where its agent dials."""
        if not self.options.regions:
            return None
        found: dict[str, tuple[range, str]] = {}
        for region, nodes in self.network.regions.items():
            numbers = self.controllers_of(region)
            found |= dict.fromkeys(nodes, (numbers, self._agents_dial(numbers)))
        return found

    def _make_controller(self) -> Program:
        files = {"network": "network.json", "state_file": "controller-state.json"}
        options = self.options
        if self.etcd is not None:
            del files["state_file"]
        settings = {**{key: str(self.directory / name) for key, name in files.items()}, **options.settings}
        settings |= self._of_region(0) if self.options.regions else self._standing_by(0)
        if options.measured:
            settings["capacities"] = "measured"
            if options.snmp:
                settings["snmp"] = str(self.directory / "snmp" / "collector.json")
            document = network_document(self.network, self.addressing, measured=True, discover=options.discover)
        else:
            document = network_document(self.network, self.addressing)
        (self.directory / "network.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
        return self._program("controller", settings)

    def _make_slicer(self) -> Program:
        ports = (controller_ports(number)["openflow"] for number in range(self.options.controllers))
        document = {
            "slices": [{"name": "production", "controllers": [f"tcp:127.0.0.1:{port}" for port in ports]}],
            "listen": {"openflow": {"port": SLICER_PORT}, "control": "slicer.sock"},
            "state_file": "slicer.state",
        }
        return self._program("slicer", document)

    def _program(self, command: str, settings: dict[str, Any], suffix: str = "") -> Program:
        path, log = (self.directory / f"{command}{suffix}.{kind}" for kind in ("json", "log"))
        path.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        words = [*HYROADS, command, "--config", str(path)]
        return Program(f"{command}{suffix}", words, log, niceness=CONTROLLER_NICENESS)

    # Start-up

    def start(self, say: Say) -> None:
        """Brings everything up, saying what it does; raises EmulationError with the failing part's own words."""
        say("Open vSwitch")
        self.switch.start()
        self._prepare_radios()
        if self.etcd is not None:
            say(f"etcd, {self.options.etcd_members} member{'s' if self.options.etcd_members > 1 else ''}")
            self.etcd.start()
            self.etcd.wait_ready()
        if self.options.controller:
            # First, because it takes longest; the switches and agents find it when it listens.
            for controller in self.controllers:
                controller.start()
        if self.slicer is not None:
            self.slicer.start()
        say(f"Mininet network of {len(self.network.nodes)} nodes, {len(self.network.links)} links")
        self._start_mininet()
        self._start_radios()
        if self.options.controller:
            say("controller" if len(self.controllers) == 1 else f"{len(self.controllers)} controllers")
            self.wait_ready()
        self._start_waypoints(say)
        if self.options.guest:
            say("guest network")
            self.guest_network = GuestNetwork(self)
            lease = self.guest_network.start()
            say(f"the guest at {self.guest_network.gateway} has {lease.address}")
        say("ready")

    def _prepare_radios(self) -> None:
        options, where, socket = self.options, (self.network, self.addressing), self.directory / "medium.sock"
        if options.snmp:
            self.snmp = SnmpAgents(*where, self.directory / "snmp", socket, options.errors, wireless=options.wireless)
            self.snmp.write()
        if options.measured or options.radios:
            self.radios = RadioChannel(*where, self.directory, socket, options.errors, controllers=self._agents_dial())

    def _start_radios(self) -> None:
        if self.snmp is not None:
            self.snmp.start()
        if self.radios is not None:
            self.radios.start()
        if self.options.controller:
            self.associations = association_agents(self.cells.values(), self.directory, self._agents_dial())
            for program in self.associations.values():
                program.start()

    def _start_waypoints(self, say: Say) -> None:
        names = {node: self._plain(node) for node in self.network.nodes}
        for node in gateways(self.network):
            say(f"waypoint of {node}")
            where = self.directory, self.inside(node)
            self.waypoints[node] = waypoint(node, self.network, self.addressing, names, *where)
            self.waypoints[node].start()
        for program in self.waypoints.values():
            wait_for_waypoint(program)
        # As DHCP would: an interface carries a tunnel only if it leads anywhere.
        for node in clients_of(self.network) if self.waypoints else ():
            way = self.addressing.host_ip[next(iter(self.waypoints))]
            run(*self.inside(node), "ip", "route", "replace", "default", "via", way)

    def _start_mininet(self) -> None:
        # Mininet 2.3 imports distutils, which Python 3.11 warns about.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from mininet.log import setLogLevel
        from mininet.net import Mininet

        from .hybrid import HybridNet, HybridTopo
        from .radio_cells import RadioPlan

        setLogLevel("output")
        # Mininet would raise limits of the whole machine, which outlive the network; ours is small enough without.
        Mininet.inited = True
        topo = HybridTopo(
            network=self.network,
            directory=self.directory,
            realtime=self.options.realtime,
            bound_to_parent=False,
            medium_options=self.options.medium,
            radio=RadioPlan(our_medium=self.options.radio_medium) if self.options.radio else None,
            agent_controller=self._agents_dial(),
            controller_of=self._controller_of(),
        )
        self.net = HybridNet(topo=topo, controller=None, build=False, ipBase="10.0.0.0/16")
        self._start_net(self.net, topo.shared)

    def _agents_dial(self, numbers: range | None = None) -> str:
        """Where agents and radios dial: these controllers, or all."""
        ports = [controller_ports(n)["agents"] for n in numbers or range(self.options.controllers)]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    def _start_net(self, net: Any, shared: Any) -> None:
        """Starts Mininet's network once the controller listens, and names the nodes' namespaces."""
        from .controllers import ListeningController
        from .radio_cells import RadioCell

        # With --no-controller the switches dial the same address, where the user's own controller listens.
        dialled = self.options.controllers if self.slicer is None else 1
        for number in range(dialled):
            port = controller_ports(number)["openflow"] if self.slicer is None else SLICER_PORT
            net.addController(f"controller{number or ''}", ListeningController, port=port)
        net.build()
        self._built()
        self._wait_listening()
        net.start()
        self.shared = shared
        self.cells = {node.technology: node for node in net.switches if isinstance(node, RadioCell)}
        for node in self.network.nodes:
            run("ip", "netns", "attach", self.namespace(node), str(self.node(node).pid))

    def _built(self) -> None:
        """Called when all nodes exist, and no agent runs yet."""

    def _wait_listening(self) -> None:
        """Waits until the switches can connect: one that dials in vain waits twice as long each time, up to 8 s."""
        asked = [(one, controller_ports(number)["openflow"]) for number, one in enumerate(self.controllers)]
        if self.slicer is not None:
            asked.append((self.slicer, SLICER_PORT))
        for program, port in asked if self.options.controller else ():
            wait_until(program.name, partial(_serves, program, port), CONTROLLER_START_TIMEOUT_S)

    def wait_ready(self, timeout_s: float = CONTROLLER_START_TIMEOUT_S) -> None:
        """Waits until each controller says that nothing is missing, and, of several, that one leads."""

        def ready() -> bool:
            self.check()
            for controller in self.controllers:
                if not controller.alive:
                    raise EmulationError(controller.failure())
            with suppress(ClientError):
                clients = [self.rest.only(url) for url in self.rest_urls]
                leads = self.etcd is None or all(client.get("/ha")["leader"] is not None for client in clients)
                return leads and all(client.health()["ok"] for client in clients)
            return False

        try:
            wait_until("controller", ready, timeout_s, interval_s=0.1)
        except EmulationError as error:
            raise EmulationError(f"{error}{self._missing()}") from error

    def _missing(self) -> str:
        """What the controller says it waits for, and the last thing that went wrong."""
        try:
            health = self.rest.health()
        except ClientError:
            return ""
        errors = [f"{error['where']}: {error['what']}" for error in health["last_errors"][-1:]]
        waiting = ", ".join(health["pending"])
        return "; ".join(["", *([f"waiting for {waiting}"] if waiting else []), *errors])

    # Parts

    def namespace(self, node: str) -> str:
        """Name of a node's network namespace."""
        return namespace_name(self.name, self._plain(node))

    def _plain(self, node: str) -> str:
        return node if _PLAIN_NAME.fullmatch(node) else f"n{self.addressing.node_number[node]}"

    def node(self, node: str) -> Any:
        """The Mininet node."""
        if self.net is None:
            raise EmulationError("the network is not started")
        return self.net[node]

    def inside(self, node: str) -> list[str]:
        """Prefix of a command that runs it on a node."""
        return ["nsenter", f"--net=/proc/{self.node(node).pid}/ns/net", "--"]

    def agent(self, node: str) -> Program:
        """The agent of a node."""
        device: HybridNode = self.node(node)
        if device.agent is None:
            raise EmulationError(f"node {node} has no agent")
        return device.agent

    def agents(self) -> dict[str, Program]:
        """All agents by node."""
        return {node: self.agent(node) for node in sorted(self.addressing.agents & self.addressing.dpid.keys())}

    # Watching

    def check(self) -> None:
        """Raises EmulationError if a part without which there is no network has ended."""
        programs = list(self.switch.programs)
        programs += [self.shared.program] if self.shared is not None and self.shared.program is not None else ()
        for program in programs:
            if not program.alive:
                raise EmulationError(program.failure())

    def restart_dead(self, say: Say) -> None:
        """Starts agents and controller again a second after they ended, as a service manager would."""
        programs = [*self.agents().values(), *(self.controllers if self.options.controller else [])]
        programs += self.etcd.programs if self.etcd is not None else ()
        programs += [self.slicer] if self.slicer is not None else ()
        programs += self.snmp.programs.values() if self.snmp is not None else ()
        programs += [self.radios.program] if self.radios is not None else ()
        programs += [program for cell in self.cells.values() for program in cell.programs()]
        programs += [*self.associations.values(), *self.waypoints.values()]
        programs += self.guest_network.programs if self.guest_network is not None else ()
        for program in programs:
            if program.alive:
                self._died_s.pop(program.name, None)
            elif time.monotonic() - self._died_s.setdefault(program.name, time.monotonic()) >= RESTART_AFTER_S:
                say(f"{program.failure()}; starting it again")
                program.start()

    # Questions

    def agent_report(self, node: str) -> dict[str, Any]:
        """The counters of a node's agent, asked of the agent itself."""
        with EdgeClient(self.directory / f"edge-{node}.sock") as client:
            return client.stats()

    def margin(self) -> float:
        """The share of airtime that the controller leaves free."""
        for given in (self.options.settings.get("margin"), self.network.margin):
            if isinstance(given, int | float):
                return float(given)
        return DEFAULT_MARGIN

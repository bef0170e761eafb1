"""What a client and a waypoint change of their hosts, in namespaces with real packets: made, made again, undone."""

from __future__ import annotations

import sys

import client_fixtures
from client_fixtures import NEEDS_ROOT
from multihomed import SERVER, World, tcp_server, wait_until

pytestmark = NEEDS_ROOT

HEAD = """
import pathlib, os, fcntl, struct
from hyroads.controller.client.host import ClientHost, ClientPlan, WaypointHost
def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))
    fcntl.ioctl(fd, 0x400454CB, 1)
    return fd
"""
APPLY = (
    HEAD
    + """
fd = tun("hr0")
host = ClientHost(pathlib.Path({folder!r}))
plan = ClientPlan(("wlan0", "wwan0", "usb7"), "10.171.0.2", "fd68:7972:6f61::2", {waypoint!r}, {used_up!r})
host.apply(plan, {left!r})
"""
)
STAY = "print('ready', flush=True); import time; time.sleep(60)"

world = client_fixtures.world


def apply_text(world: World, **what: object) -> str:
    return APPLY.format(folder=str(world.folder), **{"waypoint": None, "used_up": (), "left": {}, **what})


def applied(world: World, **what: object) -> None:
    """And hr0 has a carrier until the world ends."""
    log = world.folder / "apply.log"
    world.start(world.client, sys.executable, "-c", apply_text(world, **what) + STAY, log=log)
    wait_until(lambda: "ready" in log.read_text() or "Error" in log.read_text())
    assert "Error" not in log.read_text(), log.read_text()


def undo(world: World) -> None:
    world.python(world.client, HEAD + f"ClientHost(pathlib.Path({str(world.folder)!r})).undo()")


def test_everything_goes_over_hr0_but_networks_on_the_link_and_bound_sockets(world: World) -> None:
    before = world.route(SERVER)
    assert before["dev"] == "wlan0"
    applied(world)
    assert (world.route(SERVER)["dev"], world.route(SERVER)["prefsrc"]) == ("hr0", "10.171.0.2")
    assert world.route("10.2.0.1")["dev"] == "wwan0"
    assert world.route(SERVER, "oif", "wwan0")["gateway"] == "10.2.0.1"
    with tcp_server(world, 7000):
        # Connections that are older than hr0 have an interface's address: they stay where they are.
        code = f"import socket; s = socket.create_connection(('{SERVER}', 7000), 3, ('10.1.0.2', 0)); print(s.recv(99))"
        assert "10.1.0.2" in world.python(world.client, code)


def test_without_the_program_the_host_s_own_routes_count(world: World) -> None:
    world.python(world.client, apply_text(world))
    # The TUN stays, without a carrier.
    assert "hr0" in world.inside(world.client, "ip", "-br", "link")
    # The kernel acts on a lost carrier within a second.
    wait_until(lambda: world.route(SERVER)["dev"] == "wlan0", 3.0)
    world.inside(world.client, "ip", "link", "set", "wlan0", "down")
    assert world.route(SERVER)["dev"] == "wwan0"


def test_the_waypoint_is_never_reached_over_hr0(world: World) -> None:
    applied(world, waypoint=SERVER)
    assert world.route(SERVER)["dev"] == "wlan0"
    assert world.route("203.0.113.1")["dev"] == "hr0"


def test_the_kernel_answers_nothing_at_mapped_ports(world: World) -> None:
    call = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for port in (19999, 20000, 32767, 32768):
        s = socket.socket(socket.AF_INET, kind); s.settimeout(0.4)
        try:
            s.connect(("10.1.0.2", port)); s.send(b"x"); s.recv(1); print("?", end=" ")
        except ConnectionRefusedError: print("refused", end=" ")
        except TimeoutError: print("silent", end=" ")
"""
    assert world.python(world.net, call).split() == ["refused"] * 8
    applied(world)
    assert world.python(world.net, call).split() == ["refused", "silent", "silent", "refused"] * 2


def test_hr0_s_address_never_leaves_by_another_interface(world: World) -> None:
    chain = "add chain inet seen c { type filter hook prerouting priority 0; }"
    rule = "add rule inet seen c ip saddr 10.171.0.2 counter"
    world.inside(world.net, "nft", f"add table inet seen; {chain}; {rule}")
    world.python(world.client, apply_text(world))
    wait_until(lambda: world.route(SERVER)["dev"] == "wlan0", 3.0)
    send = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("10.171.0.2", 0))
try: s.sendto(b"x", ("{SERVER}", 9))
except PermissionError: pass
"""
    world.python(world.client, send)
    assert "packets 0 " in world.inside(world.net, "nft", "list", "table", "inet", "seen")
    world.inside(world.client, "nft", "delete", "table", "inet", "hyroads_client")
    world.python(world.client, send)
    wait_until(lambda: "packets 1 " in world.inside(world.net, "nft", "list", "table", "inet", "seen"))


def test_an_interface_whose_cap_is_used_up_sends_nothing(world: World) -> None:
    ping = ("ping", "-c", "1", "-W", "1", "-I", "wwan0", SERVER)
    applied(world)
    assert " 0% packet loss" in world.inside(world.client, *ping)
    world.python(world.client, apply_text(world, used_up=("wwan0",)).replace('fd = tun("hr0")', ""))
    assert "100% packet loss" in world.inside(world.client, *ping, check=False)
    assert " 0% packet loss" in world.inside(world.client, "ping", "-c", "1", "-W", "1", "-I", "wlan0", SERVER)


def test_the_kernel_itself_ends_the_traffic_at_the_cap(world: World) -> None:
    """However fast it comes, and whether or not anybody looks."""
    applied(world, left={"wwan0": 1_000_000})
    flood = ("ping", "-q", "-I", "wwan0", "-s", "1400", "-i", "0.001", "-c", "1000", "-W", "1", SERVER)
    said = world.inside(world.client, *flood, check=False)
    answered = int(said.split("transmitted, ")[1].split()[0])
    assert 0.9e6 < 2 * 1428 * answered <= 1e6


def test_all_is_undone_also_by_the_successor_of_a_killed_daemon(world: World) -> None:
    world.inside(world.client, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=8080,25000-25001")
    before = world.state(world.client)
    world.python(world.client, apply_text(world))
    changed = world.state(world.client)
    assert all(changed[what] != before[what] for what in ("rules4", "links", "filter", "sysctls", "ports"))
    assert "8080,20000-32767" in changed["ports"]
    # A second process takes what it finds for what was before, were it not for the file.
    world.python(world.client, apply_text(world, waypoint=SERVER) + "host.apply(plan, {})")
    world.python(world.client, apply_text(world))
    assert world.state(world.client)["sysctls"] == changed["sysctls"]
    assert world.state(world.client)["rules4"] == changed["rules4"]
    undo(world)
    assert world.state(world.client) == before
    undo(world)
    assert world.state(world.client) == before


def test_a_client_without_ipv6_in_its_networks_has_no_default_route_for_it(world: World) -> None:
    applied(world)
    assert "5173" not in world.inside(world.client, "ip", "-6", "rule")
    assert "fd68:7972:6f61::2" in world.inside(world.client, "ip", "address", "show", "dev", "hr0")
    world.inside(world.client, "ip", "-6", "address", "add", "2001:db8::2/64", "dev", "wlan0", "nodad")
    world.inside(world.client, "ip", "-6", "route", "add", "default", "via", "2001:db8::1", "dev", "wlan0")
    world.python(world.client, apply_text(world).replace('fd = tun("hr0")', ""))
    assert "5173" in world.inside(world.client, "ip", "-6", "rule")
    assert world.route("2001:db8:9::1")["dev"] == "hr0"
    assert world.route("2001:db8:9::1", "oif", "wlan0")["dev"] == "wlan0"


def waypoint_text(world: World, *, is_isolated: bool = False) -> str:
    return HEAD + (
        'fd = tun("hrw0")\n'
        f"host = WaypointHost(pathlib.Path({str(world.folder)!r}), is_isolated={is_isolated})\n"
        'host.apply("100.72.0.1", 16, "fd68:7972:6f61:7770::1", 64)\n'
    )


def ping_text(target: str, within_s: float = 3.0) -> str:
    """A client's packet comes out of the TUN: ICMP echo from 100.72.0.2, its answer goes back into it."""
    return (
        "import socket, time\n"
        f"body = bytes.fromhex('4500001c000040004001') + bytes(2) + socket.inet_aton('100.72.0.2') + "
        f"socket.inet_aton('{target}')\n"
        "def total(data):\n"
        "    s = sum(int.from_bytes(data[i:i + 2], 'big') for i in range(0, len(data), 2))\n"
        "    s = (s & 0xffff) + (s >> 16); return ((s & 0xffff) + (s >> 16)) ^ 0xffff\n"
        "body = body[:10] + total(body).to_bytes(2, 'big') + body[12:]\n"
        "echo = bytes.fromhex('08000000') + bytes.fromhex('00070001')\n"
        "echo = echo[:2] + total(echo).to_bytes(2, 'big') + echo[4:]\n"
        "os.write(fd, body + echo)\n"
        f"end = time.time() + {within_s}\n"
        "while time.time() < end:\n"
        "    try: got = os.read(fd, 2000)\n"
        "    except BlockingIOError: time.sleep(0.01); continue\n"
        "    if got[0] >> 4 == 4 and got[9] == 1 and got[20] == 0:\n"
        "        print('answered', socket.inet_ntoa(got[16:20])); break\n"
    )


def test_a_waypoint_masquerades_its_clients_and_leaves_no_trace(world: World) -> None:
    before = world.state(world.client)
    make = waypoint_text(world)
    assert "answered 100.72.0.2" in world.python(world.client, make + ping_text(SERVER))
    world.python(world.client, make)
    world.python(world.client, HEAD + f"WaypointHost(pathlib.Path({str(world.folder)!r})).undo()")
    assert world.state(world.client) == before


def test_clients_of_an_isolated_waypoint_reach_the_internet_but_no_network_of_its_host(world: World) -> None:
    metadata, lan, own = "169.254.169.254", "10.1.0.1", "10.1.0.2"
    world.inside(world.net, "ip", "address", "add", f"{metadata}/32", "dev", "lo")
    world.inside(world.client, "ip", "address", "add", "203.0.113.2/24", "dev", "wlan0")
    before = world.state(world.client)
    for target in (SERVER, metadata, lan, own):
        assert "answered" in world.python(world.client, waypoint_text(world) + ping_text(target)), target
    make = waypoint_text(world, is_isolated=True)
    assert "answered" in world.python(world.client, make + ping_text(SERVER))
    # The last one is public, but in a network of the host.
    for target in (metadata, lan, own, "203.0.113.2"):
        assert "answered" not in world.python(world.client, make + ping_text(target, 0.3)), target
    world.python(world.client, HEAD + f"WaypointHost(pathlib.Path({str(world.folder)!r})).undo()")
    assert world.state(world.client) == before

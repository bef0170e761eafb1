"""Mininet's habits on a hybrid network: a file of Mininet commands, and Mininet's own command."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from network_names import network_name

import hyroads.mininet.mn_custom

RULES = """\
sh ovs-ofctl -O OpenFlow13 add-flow b in_port=b-host,actions=output:b-wifi
sh ovs-ofctl -O OpenFlow13 add-flow b in_port=b-wifi,actions=output:b-host
"""


def answered(text: str) -> list[bool]:
    return ["1 received" in line for line in text.splitlines() if "packets transmitted" in line]


def test_prompt_commands_and_links_that_go_up_and_down(lab, tmp_path):
    ping = "b ping -c1 -W1 c\n"
    script = tmp_path / "commands"
    script.write_text(
        "nodes\nnet\n" + RULES + ping + "cut bc-wifi\n" + ping + "restore bc-wifi\n" + ping
        + "link c wifi down\n" + ping + "link c wifi up\n" + ping + "media\niperf b c\n"
    )  # fmt: skip
    done = lab.run_hyroads(
        "emulate",
        "triangle",
        "--name",
        network_name("cli"),
        "--no-controller",
        "--publish",
        "0",
        "--script",
        str(script),
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert answered(text) == [True, False, True, False, True]
    assert "a-plc:plc-a" in text
    speeds = re.search(r"Results: \['([0-9.]+) Mbits/sec', '([0-9.]+) Mbits/sec'\]", text)
    assert speeds is not None, text
    assert 15 < float(speeds[1]) <= 30
    assert lab.leftovers(network_name("cli")) == []


@pytest.mark.skipif(shutil.which("mn") is None, reason="no mn")
def test_mininets_own_command_takes_our_classes(tmp_path):
    """In namespaces of its own, with an Open vSwitch of its own, as ``mn`` expects one to run."""
    # The prompt hands what it has not read yet to a node's command, so that comes last.
    commands = tmp_path / "commands"
    commands.write_text(RULES + "pingpair\nb ping -c1 -W2 c\n")
    custom = Path(hyroads.mininet.mn_custom.__file__).resolve()
    inside = f"""
        set -e
        export OVS_RUNDIR={tmp_path} OVS_DBDIR={tmp_path} OVS_LOGDIR={tmp_path} OVS_SYSCONFDIR={tmp_path}
        ip link set lo up
        ovsdb-tool create {tmp_path}/conf.db /usr/share/openvswitch/vswitch.ovsschema
        ovsdb-server {tmp_path}/conf.db --remote=punix:{tmp_path}/db.sock --pidfile --detach -vconsole:off
        ovs-vsctl --no-wait init
        ovs-vswitchd --pidfile --detach -vconsole:off
        {sys.executable} $(command -v mn) --custom {custom} --topo hyroads,triangle --controller none < {commands}
        echo; echo list of what is left:
        ip -o link show type tun; ip -o link show type veth; ovs-vsctl list-br
        echo end of list
    """
    isolated = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", inside]
    done = subprocess.run(isolated, capture_output=True, text=True, timeout=90, check=False)
    text = done.stderr + done.stdout
    assert done.returncode == 0, text
    assert answered(text)[0]
    # Mininet's own class knows one host here and could not ping a pair.
    assert "a -> " in text
    assert done.stdout.rstrip().endswith("list of what is left:\nend of list")

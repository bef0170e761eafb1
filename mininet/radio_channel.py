"""The radio channel of an emulated network: one process speaks for all nodes (docs/reference/measurement.md, section
5).

    python -m hyroads.mininet.radio_channel --config FILE

Each node has its own session; hyroads-medium is asked once per interval for all of them. What a session tells is what
the node's own radios could know: neighbours, estimates with a driver's errors, the busy time that the node hears.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network
from hyroads.controller.radio.backends import MediumSource
from hyroads.controller.radio.channel import Channel, Document, address_of, interface_document
from hyroads.controller.radio.complaints import Complaints
from hyroads.controller.radio.config import AgentConfig, parse
from hyroads.controller.radio.emulated import EmulatedRadio, MediumState
from hyroads.controller.radio.model import RadioError
from hyroads.mininet.access_points import agent_document, write_private
from hyroads.mininet.programs import Program

CONTROLLER = "127.0.0.1:6654"


class MediumReadings:
    """Readings of all nodes from one look at the medium (``radio.channel.Readings``)."""

    def __init__(self, configs: Sequence[AgentConfig], source: MediumSource, complain: Complaints) -> None:
        self._source = source
        self._complain = complain
        self._state: MediumState | None = None
        self._radios = {
            config.node: [
                (i.technology, EmulatedRadio(i.name, i.peers, config.errors, self._look)) for i in config.interfaces
            ]
            for config in configs
        }

    def collect(self, nodes: Collection[str], patience_s: float) -> Mapping[str, Document]:
        """See the protocol; the medium answers at once."""
        now_s = time.monotonic()
        try:
            self._state = self._source()
        except RadioError as error:
            self._complain(str(error))
            return {}
        return {
            node: {
                "time_s": now_s,
                "interfaces": [interface_document(name, radio.read(now_s)) for name, radio in self._radios[node]],
            }
            for node in nodes
        }

    def _look(self) -> MediumState:
        if self._state is None:
            raise RadioError("the medium was not asked")
        return self._state


class RadioChannel:
    """The process and its file."""

    def __init__(
        self,
        network: Network,
        addressing: Addressing,
        directory: Path,
        medium_socket: Path,
        errors: Mapping[str, float],
        *,
        token: str | None = None,
    ) -> None:
        self._path = directory / "radio-channel.json"
        self._document = {
            "controller": CONTROLLER,
            "token": token,
            "nodes": [agent_document(network, addressing, node, medium_socket, errors) for node in addressing.dpid],
        }
        command = [sys.executable, "-m", "hyroads.mininet.radio_channel", "--config", str(self._path)]
        self.program = Program("radio channel", command, directory / "radio-channel.log")

    def start(self) -> None:
        """Writes the file and starts the process."""
        write_private(self._path, self._document)
        self.program.start()


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--config", required=True, type=Path)
    arguments = parser.parse_args()
    document = json.loads(arguments.config.read_text(encoding="utf-8"))
    configs = [parse(json.dumps(node), str(arguments.config)) for node in document["nodes"]]
    complain = Complaints("radio channel")
    readings = MediumReadings(configs, MediumSource(str(configs[0].medium_socket)), complain)
    nodes = [config.node for config in configs if config.interfaces]
    Channel(address_of(document["controller"]), document["token"], nodes, readings, complain).run()


if __name__ == "__main__":
    main()

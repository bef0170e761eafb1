"""Settings and network file, read and checked as for a start. Apart from the running controller, because ``hyroads
controller --check`` must not take the time to load the framework.
"""

from __future__ import annotations

from collections.abc import Mapping

from hyroads.controller.files.documents import read_file
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.settings.boxes import authority_of
from hyroads.controller.settings.changes import Files
from hyroads.controller.settings.controller import DEFAULT_FILE, MEASURED, load


def read_files(environment: Mapping[str, str]) -> Files:
    """What a controller would start with now; :class:`ConfigError`. Checks all that can be checked without others."""
    settings = load(environment)
    network = read_file(settings.network, measured=settings.capacities == MEASURED)
    access = settings.access
    TopologyContext.of(
        network,
        settings.network,
        guards=access.guard,
        dhcp=access.dhcp_servers,
        routers=access.routers,
        closed=access.closed,
        seals_links=settings.seals_links,
    )
    if settings.boxes is not None:
        authority_of(settings.boxes, settings.dialled_by_boxes, environment.get("HYROADS_CONFIG") or DEFAULT_FILE)
    settings.slices.check_network(network, settings.network)
    return Files(settings, network)

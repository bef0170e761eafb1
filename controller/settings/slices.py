"""The part ``slices`` of the settings: which slices flows may name, and their shares of airtime
(docs/explanation/rates.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.checking import Place, describe
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import PRODUCTION, FlowSpec, Network
from hyroads.controller.files.text import read_text

MAX_SLICES = 254
# Shares that are written with few digits may add up to a little more than 1.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SliceSettings:
    """Slice -> technology -> share of each domain's airtime when others want it too; production has none."""

    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    document: str = "settings"

    def check_network(self, network: Network, document: str) -> None:
        """:class:`ConfigError` for technologies that the network lacks, and flows of its file in unknown slices."""
        for name, shares in self.shares.items():
            for technology in shares:
                if technology not in network.technologies:
                    known = ", ".join(network.technologies)
                    text = f"no technology {describe(technology)} in {document}, which has {known}"
                    raise ConfigError(self.document, f"slices.{name}", text)
        for index, flow in enumerate(network.flows):
            self.check_flow(flow, document, f"flows[{index}].slice")

    def check_flow(self, flow: FlowSpec, document: str, place: str = "slice") -> None:
        """:class:`ConfigError` if there is no such slice."""
        if flow.slice != PRODUCTION and flow.slice not in self.shares:
            raise ConfigError(document, place, f"no slice {describe(flow.slice)} in the settings")


NO_SLICES = SliceSettings()


def parse_slices(place: Place | None, base: Path) -> SliceSettings:
    """The name of a file of slices (docs/reference/slicer.md), or a mapping of slices to their shares."""
    if place is None or place.value is None:
        return NO_SLICES
    if isinstance(place.value, str) and place.value and "\0" not in place.value:
        # The slicer's model of slices takes long to load, and most controllers have no slices.
        from hyroads.slices.core.delegation import own_limits
        from hyroads.slices.core.slicefile import load_text

        name = str(base / place.value)
        model = load_text(read_text(name), name)
        # What a slice has given to children is theirs.
        settings = SliceSettings({each: own_limits(model, each).airtime_share for each in model.slices}, name)
    elif isinstance(place.value, Mapping):
        shares = {
            name: {technology: share.number(0.5, 0.0, 1.0) for technology, share in of.entries()}
            for name, of in place.entries()
        }
        settings = SliceSettings(shares, place.problems.document)
    else:
        place.expected("the name of a file of slices, or a mapping of slices to shares of airtime")
        return NO_SLICES
    _check(settings, place)
    return settings


def _check(settings: SliceSettings, place: Place) -> None:
    if len(settings.shares) > MAX_SLICES:
        place.fail(f"expected at most {MAX_SLICES} slices, got {len(settings.shares)}")
    if settings.shares.get(PRODUCTION):
        place.key(PRODUCTION, None).fail("expected no share: production has what the others leave")
    together: dict[str, float] = {}
    for shares in settings.shares.values():
        for technology, share in shares.items():
            together[technology] = together.get(technology, 0.0) + share
    for technology, share in together.items():
        if share > 1 + _ROUNDING:
            place.fail(f"expected shares of {technology} that are at most 1 together, got {share:g}")

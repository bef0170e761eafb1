"""Which plugin serves a request, the pure part. Who asks for none gets what is set for the flow, else for the client,
else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Selection:
    """Names of plugins: by flow, by client, and for all others."""

    default: str
    by_client: Mapping[str, str] = field(default_factory=dict)
    by_flow: Mapping[str, str] = field(default_factory=dict)

    def name(self, *, asked: str | None = None, client: str | None = None, flow: str | None = None) -> str:
        """The name that counts."""
        by_flow = self.by_flow.get(flow) if flow is not None else None
        by_client = self.by_client.get(client) if client is not None else None
        return asked or by_flow or by_client or self.default

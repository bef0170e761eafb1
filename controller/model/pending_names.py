"""The names by which all answers and ``/health`` say what is pending."""

from __future__ import annotations

START, PLAN, LEADER = "start", "plan", "leader"
"""The controller deploys nothing yet; a change is not planned yet; a follower has no word of the leader yet."""


def switch_name(node: str) -> str:
    """The name of a node's switch."""
    return f"switch {node}"


def agent_name(node: str) -> str:
    """The name of a node's agent."""
    return f"agent {node}"


def node_of(device: str) -> str:
    """The node of a switch, agent or radios (``radios of NODE``) by their name."""
    return device.removeprefix("switch ").removeprefix("agent ").removeprefix("radios of ")


def client_name(client: str) -> str:
    """The name of a multi-homed client."""
    return f"client {client}"

"""Bandits that learn the best multipath from measurements (docs/explanation/bandit.md)."""

from hyroads.controller.core.bandit.flow import Exploit, FlowBandit, Probe, flow_bandit
from hyroads.controller.core.bandit.hymab import Hymab
from hyroads.controller.core.bandit.hymab_plus import HymabPlus

__all__ = ["Exploit", "FlowBandit", "Hymab", "HymabPlus", "Probe", "flow_bandit"]

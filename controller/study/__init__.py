"""Studies: the published experiments repeated without a network, with a report (docs/explanation/bandit.md)."""

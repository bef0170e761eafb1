"""Estimation: from noisy measurements to capacities, busy times and external airtime
(docs/explanation/closed-loop.md)."""

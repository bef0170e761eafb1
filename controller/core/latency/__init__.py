"""Latency policy: queues with two service rates, choice of a technology, split over two (docs/latency-and-privacy.md)."""

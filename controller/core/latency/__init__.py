"""Latency policy: queues with two service rates, and splits over two (docs/explanation/latency-and-privacy.md)."""

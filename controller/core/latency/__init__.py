"""Latency policy: queues with two service rates, one technology or a split over two
(docs/explanation/latency-and-privacy.md).
"""

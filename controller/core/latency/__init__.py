"""Latency policy: queues with two service rates, choice of a technology, split over two (spec 04, section 1)."""

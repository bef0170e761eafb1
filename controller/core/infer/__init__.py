"""Inference: topology, interference and significant changes from what nodes report (docs/closed-loop.md)."""

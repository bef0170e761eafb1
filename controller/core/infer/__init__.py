"""Interference and significant changes from what nodes report (docs/explanation/closed-loop.md)."""

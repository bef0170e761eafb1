"""Slicing: several controllers share one network (docs/slicing.md)."""

"""Slicing: several controllers share one network (docs/explanation/slicing.md)."""

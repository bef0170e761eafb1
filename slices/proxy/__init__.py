"""The core of the slicing proxy, without I/O (docs/explanation/slicing.md)."""

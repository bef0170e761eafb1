"""The core of the slicing proxy, without I/O (docs/explanation/slicing.md, sections 4 and 5)."""

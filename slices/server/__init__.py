"""The process ``hyroads slicer``: sockets and files around the pure core (docs/explanation/slicing.md, section 8)."""

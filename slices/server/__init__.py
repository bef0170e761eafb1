"""The process ``hyroads slicer``: sockets and files around the pure core (docs/slicing.md, section 8)."""

"""The process ``hyroads slicer``: sockets and files around the pure core (docs/reference/slicer.md)."""

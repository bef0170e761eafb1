"""A box: a machine that joins a controller and becomes a node. Needs Python's standard library alone."""

"""The compiled fast path of the slicer (``dataplane/src/slicer``): the memory that it shares, and the calls."""

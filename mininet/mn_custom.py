"""For Mininet's own command: ``mn --custom .../mn_custom.py --topo hyroads,NET --controller hyroads,NET``.

``mn`` runs this file and takes what it defines: tables of names for its options, and ``Mininet``, which replaces the
class that it builds the network with.
"""

# The file is run by itself, outside of its package: imports from "." would fail.
from hyroads.mininet.controllers import HyroadsController, ListeningController
from hyroads.mininet.hybrid import HybridNet as Mininet
from hyroads.mininet.hybrid import HybridTopo

__all__ = ["Mininet", "controllers", "topos"]

topos = {"hyroads": HybridTopo}
controllers = {"hyroads": HyroadsController, "remote": ListeningController}

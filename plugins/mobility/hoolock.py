"""``hoolock``: flows move to the new place, and receivers hold what comes by it until the old one has drained.

Yap, "Using all networks around us" (Stanford 2013), 5.1: lossless and in order, for clients with two interfaces. There
the holding time alone bounded the wait; here a marker behind the last packet by the old place ends it, and the holding
time is the bound if the marker does not come.
"""

from __future__ import annotations

from .make_before_break import MakeBeforeBreak

MANAGER = MakeBeforeBreak("hoolock")

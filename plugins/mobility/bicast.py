"""``bicast``: every packet goes to both places until the client has left the old one; the receiver removes copies.

Yap's thesis (Stanford 2013), 5.1. What was sent before copies began is in flight to the old place alone, so the client
may leave that only once the marker behind it has come: copies do not make the marker needless.
"""

from __future__ import annotations

from .make_before_break import MakeBeforeBreak

MANAGER = MakeBeforeBreak("bicast", copies=True)

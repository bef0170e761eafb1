"""``vertical``: a lossless handover between technologies, where the new interface may take seconds to work.

Yap's thesis (Stanford 2013), 5.1: holding the old interface for 4 s lost nothing where 1 s lost 161 pings. Here the new
place has to be heard without a break before anything moves, and holding is bounded by 4 s at least, because packets
in flight over a cellular network can be late by seconds.
"""

from __future__ import annotations

from .make_before_break import MakeBeforeBreak

LEAST_HOLD_S = 4.0

MANAGER = MakeBeforeBreak("vertical", warms=True, least_hold_s=LEAST_HOLD_S)
BICAST = MakeBeforeBreak("vertical-bicast", copies=True, warms=True, least_hold_s=LEAST_HOLD_S)

"""What an access point knows of its media: radio back ends, and the SNMP agent that serves it
(docs/reference/measurement.md).

Runs on an access point without the rest: standard library only, no Ryu, no numpy.
"""

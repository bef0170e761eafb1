"""Sessions with OpenFlow switches."""

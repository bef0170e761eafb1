"""Adapters that turn SNMP, OpenFlow statistics and agents' reports into measurements
(docs/reference/measurement.md)."""

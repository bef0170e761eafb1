"""SNMPVisor: one SNMP agent per access point, shared by the owners of several slices (docs/reference/snmpvisor.md)."""

"""SNMPVisor: one SNMP agent per access point, shared by the owners of several slices (docs/slicing.md, section 11)."""

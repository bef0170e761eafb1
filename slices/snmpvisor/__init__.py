"""SNMPVisor: one SNMP agent per access point, shared by the owners of several slices (docs/explanation/slicing.md,
section 11)."""

"""Slices on a FlowVisor 1.4 (OpenFlow 1.0): the other backend of the slice model (docs/reference/flowvisor.md)."""

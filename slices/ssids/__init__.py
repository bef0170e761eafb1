"""Wireless networks of slices: each SSID is a virtual interface on each access point of its slice
(docs/explanation/slicing.md)."""

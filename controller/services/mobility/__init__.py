"""Handovers and n-casts."""

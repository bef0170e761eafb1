"""Multicast sessions."""

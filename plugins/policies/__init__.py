"""Policies: who should move where, without being asked."""

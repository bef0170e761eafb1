"""Mobility managers: how a client's flows move from one place to another."""

"""Policies that move clients, and how they move them."""

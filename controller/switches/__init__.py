"""switches."""

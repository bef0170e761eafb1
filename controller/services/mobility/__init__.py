"""mobility."""

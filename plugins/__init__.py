"""Services on top of the core, each small (docs/services.md)."""

"""Services on top of the core, each small (docs/explanation/services.md)."""

"""Pure parts of the services (docs/explanation/services.md): clients and their places, handovers, choices, views."""

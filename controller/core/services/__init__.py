"""Pure parts of the services (docs/services.md): clients and their places, handovers, choices, views."""

"""The event loop, the deployer of plans, faults, telemetry and persistence."""

"""The controller's state, plans and events, as immutable data."""

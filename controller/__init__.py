"""The Ryu application, its configuration and state."""

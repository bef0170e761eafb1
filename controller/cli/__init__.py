"""The command hyroads."""

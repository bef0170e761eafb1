"""The agents' server and protocol."""

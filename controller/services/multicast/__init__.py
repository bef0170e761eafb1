"""multicast."""

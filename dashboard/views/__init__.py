"""What the pages show, from the network's state. Pure: everything is data, ready for JSON."""

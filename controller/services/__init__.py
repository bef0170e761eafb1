"""Services: each holds pure state, takes events, and changes the network through its ``port.ControllerPort``."""

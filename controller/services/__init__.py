"""Shell objects of services: each holds pure state, takes events, and says what it wants to the coordinator."""

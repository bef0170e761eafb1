"""A multi-homed client: policy, modes, monthly caps, sessions with a waypoint, and the daemon over ``hyroads-client``
(docs/reference/client.md).

Runs on a laptop without the rest: the standard library, PyYAML and small parts of the core.
"""

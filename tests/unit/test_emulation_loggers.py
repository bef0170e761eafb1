"""The emulation uses Mininet, and everybody's loggers stay as they are."""

import logging

import hyroads.mininet.hybrid


def test_loggers_made_after_mininet_was_imported_are_pythons():
    assert hyroads.mininet.hybrid.Mininet
    assert type(logging.getLogger("hyroads.made.later")) is logging.Logger

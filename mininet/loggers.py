"""Mininet makes a class of its own that of all loggers that are made later, which says nothing below its own "output".

Modules that use Mininet import this one: loggers, ours too, are Python's again.
"""

import logging

import mininet.log  # noqa: F401 - what it does at its import is undone here

logging.setLoggerClass(logging.Logger)

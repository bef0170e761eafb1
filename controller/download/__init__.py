"""Downloads over several interfaces at once: ``hyroads fetch`` and ``hyroads proxy``
(docs/explanation/downloads.md).
"""

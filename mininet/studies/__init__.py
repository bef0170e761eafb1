"""Live studies: published experiments repeated on emulated networks with real packets (docs/reference/studies.md).

A live study is a module as ``controller/study/framework.py`` wants it, registered there by the module's name. Its rows
come from ``rows.py``: a row is what was measured on one emulated network, which needs root.
"""

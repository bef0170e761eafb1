"""The studies by name; each is imported only when it is run."""

from __future__ import annotations

import importlib
from typing import cast

from hyroads.controller.study.framework import Study

STUDIES: dict[str, str] = {
    "bandit": "hyroads.controller.study.bandit",
    "bandit-dynamic": "hyroads.controller.study.bandit_dynamic",
}


def study(name: str) -> Study:
    """The study of that name, a key of ``STUDIES``."""
    return cast(Study, importlib.import_module(STUDIES[name]))

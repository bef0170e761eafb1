"""An application with all REST resources, of controller and slicer, on parts that must not be reached."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from flask import Flask

from hyroads import rest
from hyroads.rest.api import create_app
from hyroads.rest.contract import Owners, Token

OF_EVERY_APPLICATION = ("flows", "network", "operations")


class Reached(BaseException):
    """Something was looked up."""


class Untouched:
    """Any part of the controller."""

    def __getattr__(self, name: str) -> Any:
        def reach(*_: object, **__: object) -> Any:
            raise Reached(name)

        return reach


def application(*tokens: Token, owners: Owners | None = None) -> Flask:
    """All resources that there are, of controller and slicer."""
    part: Any = Untouched()
    resources: list[Any] = []
    for found in pkgutil.iter_modules(rest.__path__):
        module = importlib.import_module(f"hyroads.rest.{found.name}")
        if found.name not in OF_EVERY_APPLICATION and hasattr(module, "blueprint"):
            resources.append(module.blueprint(part))
        resources += module.blueprints(part) if hasattr(module, "blueprints") else []
    return create_app(part, tokens, resources=resources, owners=owners)

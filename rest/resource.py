"""A blueprint whose requests are read strictly: unknown parameters of the query are errors, as in bodies."""

from __future__ import annotations

from typing import Any

from flask_smorest import Blueprint
from marshmallow import RAISE
from webargs.flaskparser import FlaskParser


class _Strict(FlaskParser):
    """Refuses what it does not know."""

    DEFAULT_UNKNOWN_BY_LOCATION = {**FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION, "query": RAISE}  # noqa: RUF012


class Resource(Blueprint):  # type: ignore[misc]
    """Endpoints of one resource."""

    ARGUMENTS_PARSER = _Strict()

    def __init__(self, name: str, *, url_prefix: str, description: str = "", **options: Any) -> None:
        super().__init__(name, name, url_prefix=url_prefix, description=description, **options)

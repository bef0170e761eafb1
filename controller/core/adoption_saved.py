"""Boxes as the state file has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .adoption import Adoption, Box, Boxes, State
from .box_application import application_of
from .checking import Place, Problems
from .errors import ConfigError

MOST_SAVED = 4096
_KEYS = ("id", "application", "peer", "first_s", "seen_s", "verified", "state", "connected", "problem", "adoption")
_ADOPTION = ("node", "ports", "owner", "at_s", "certificate")


def saved_boxes(boxes: Boxes) -> list[dict[str, Any]]:
    """What :func:`restored_boxes` reads."""
    return [_document(box) for box in boxes]


def restored_boxes(documents: object, most_pending: int) -> tuple[Boxes, list[ConfigError]]:
    """The saved boxes, and the problems of those that are left out."""
    found: dict[str, Box] = {}
    left_out: list[ConfigError] = []
    for index, document in enumerate(documents[:MOST_SAVED] if isinstance(documents, list) else ()):
        try:
            box = _box(document, f"state file: services.boxes[{index}]")
        except ConfigError as error:
            left_out.append(error)
            continue
        found[box.id] = box
    return Boxes(found, most_pending), left_out


def _document(box: Box) -> dict[str, Any]:
    adoption = box.adoption
    return {
        # Where each thing of a service is stored by itself, it is so by its id.
        "id": box.id,
        "application": box.application.document(),
        **{key: getattr(box, key) for key in _KEYS[2:6]},
        "state": box.state.value,
        "connected": box.connected,
        "problem": box.problem,
        "adoption": None
        if adoption is None
        else {**{key: getattr(adoption, key) for key in _ADOPTION}, "ports": dict(adoption.ports)},
    }


def _box(document: object, name: str) -> Box:
    problems = Problems(name)
    section = Place(document, problems).section(_KEYS, _KEYS)
    problems.raise_if_any()
    state = State(section["state"].choice([each.value for each in State], State.LEFT.value))
    box = Box(
        application_of(section["application"].value, name),
        str(section["peer"].value)[:64],
        section["first_s"].number(0.0),
        section["seen_s"].number(0.0),
        section["verified"].boolean(False),
        state,
        _adoption(section["adoption"]),
        section["connected"].boolean(False),
        str(section["problem"].value)[:200],
    )
    if state is State.ADOPTED and box.adoption is None:
        section["adoption"].expected("the adoption of a box that is adopted")
    problems.raise_if_any()
    return box


def _adoption(place: Place) -> Adoption | None:
    if place.value is None:
        return None
    section = place.section(_ADOPTION, _ADOPTION)
    if not isinstance(place.value, Mapping) or any(key not in section for key in _ADOPTION):
        return None
    return Adoption(
        section["node"].identifier(),
        {port: name.identifier() for port, name in section["ports"].entries()},
        str(section["owner"].value)[:64],
        section["at_s"].number(0.0),
        str(section["certificate"].value)[:8192],
    )

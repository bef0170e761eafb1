"""JSON Schemas that parsers give: every example of the project is valid, and no key that a parser does not know."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from page_session import DOCS, ROOT, blocks

from hyroads.controller.cli.main import main
from hyroads.controller.cli.schema import KINDS
from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.file_schema import schema_of

TITLES = {"hyroads.yaml": "settings", "client.yaml": "client", "slicer.yaml": "slicer", "slices.yaml": "slices",
          "network.yaml": "network", "guest.yaml": "guest-network"}  # fmt: skip
SCHEMAS = {kind: schema_of(parse, kind) for kind, (_, parse) in KINDS.items()}
VALIDATORS = {kind: jsonschema_rs.validator_for(schema) for kind, schema in SCHEMAS.items()}
UNKNOWN = "no_such_key"


def examples() -> Iterator[tuple[str, str, Any]]:
    """(where, kind, document) of all files and of all blocks of pages that are whole files."""
    files = {"network": [*(ROOT / "mininet" / "networks").glob("*.yaml"), ROOT / "tests" / "support" / "hidden.yaml"]}
    campus = ROOT / "slices" / "examples" / "campus"
    files |= {"slices": [campus / "slices.yaml", ROOT / "mininet" / "examples" / "slices.yaml"]}
    files |= {"slicer": [campus / "slicer.yaml"]}
    for kind, paths in files.items():
        yield from ((str(path.relative_to(ROOT)), kind, yaml.safe_load(path.read_text())) for path in sorted(paths))
    for page in sorted(DOCS.glob("*/*.md")):
        for block in blocks(page):
            document = yaml.safe_load(block.text) if block.title in TITLES else None
            # Pages about one setting show that alone.
            if document is not None and (block.title != "hyroads.yaml" or "network" in document):
                yield f"{page.stem}:{block.line}", TITLES[block.title], document
    (visor, *_) = [block for block in blocks(DOCS / "reference" / "snmpvisor.md") if block.language == "yaml"]
    yield "snmpvisor.md", "snmpvisor", yaml.safe_load(visor.text)


EXAMPLES = list(examples())


def mappings(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    if isinstance(document, dict):
        yield path
    for key, value in inner:
        yield from mappings(value, (*path, key))


def refused_by_the_parser(kind: str, document: Any) -> bool:
    """Whether the parser names the unknown key as the mistake."""
    try:
        KINDS[kind][1](document)
    except ConfigError as error:
        return any(each.problem.startswith("unknown key") for each in (error, *error.more))
    return False


@pytest.mark.parametrize(("kind", "document"), [pytest.param(*one, id=where) for where, *one in EXAMPLES])
def test_examples_are_valid_and_no_unknown_key_is(kind: str, document: Any) -> None:
    validator = VALIDATORS[kind]
    assert [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(document)] == []
    refused = 0
    for path in mappings(document):
        wrong = copy.deepcopy(document)
        at = wrong
        for key in path:
            at = at[key]
        at[UNKNOWN] = {}
        if refused_by_the_parser(kind, wrong):
            refused += 1
            assert not validator.is_valid(wrong), path
    assert refused


def test_there_is_an_example_of_each_kind() -> None:
    assert {kind for _, kind, _ in EXAMPLES} == set(KINDS) and len(EXAMPLES) > 25


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_a_schema_that_is_one(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema_rs.meta.validate(printed)
    assert printed["title"].startswith("HyRoads: ") and printed["additionalProperties"] is False


def parse(document: object) -> object:
    """A file with a place of each kind."""
    problems = Problems("document")
    top = Place(document, problems).section(("share", "count", "word", "name", "parts", "named", "either"), ("share",))
    if "share" in top:
        top["share"].number(0.0, 0, 1, open_low=True)
    if "count" in top:
        top["count"].integer(0, 1, 9)
    if "word" in top:
        top["word"].choice(("one", "two"), "one")
    if "name" in top:
        top["name"].identifier()
    for item in top["parts"].items() if "parts" in top else ():
        item.section(("on",), ("on",))["on"].boolean(False)
    for _, each in top["named"].entries() if "named" in top else ():
        each.number(0.0)
    if "either" in top and not isinstance(top["either"].value, str):
        list(top["either"].items())
    problems.raise_if_any()
    return document


VALUES = st.sampled_from(
    [None, True, 0, 0.5, 1, 5, 10, "one", "0x5", "", [], [{"on": True}], [{}], {}, {"a": 1}, {"a": ""}]
)


@given(st.dictionaries(st.sampled_from(["share", "count", "word", "name", "parts", "named", "either"]), VALUES))
def test_what_a_parser_takes_its_schema_takes_and_what_it_reads_itself_is_refused_alike(
    document: dict[str, Any],
) -> None:
    is_valid = jsonschema_rs.validator_for(schema_of(parse, "x")).is_valid(document)
    try:
        parse(document)
    except (ConfigError, KeyError):
        assert not is_valid
    else:
        assert is_valid

"""Reading YAML and JSON text: numbers, duplicate keys, hostile documents, files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.strict_json import MAX_CHARACTERS
from hyroads.controller.files.documents import read_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("2E3", 2000.0),
        (".5", 0.5),
        ("-4", -4),
        ("0x0800", 2048),
        ("010", "010"),
        ("12:30:00:00:00:01", "12:30:00:00:00:01"),
        ("2026-01-02", "2026-01-02"),
        ("1_000", "1_000"),
        (".inf", math.inf),
        ("true", True),
        ("{a: [1, 2.5, x]}", {"a": [1, 2.5, "x"]}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ],
)
def test_yaml_values(text: str, value: Any) -> None:
    loaded = load_document(text, "x.yaml")
    assert loaded == value
    assert type(loaded) is type(value)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "line 3", "duplicate key 'a'"),
        ("x:\n  - {id: 1, id: 2}", "line 2", "duplicate key 'id'"),
        ("a: ]", "line 1", "not valid YAML"),
        ("a: 'b", "line 1", "not valid YAML"),
        ("a: *b", "line 1", "undefined alias"),
        ("? [a]\n: 1", "line 1", "a key must be a scalar"),
        ("a: &a {x: 1}\nb: {<<: *a}", "line 2", "merge keys"),
        ("a: !!python/object:os.system x", "line 1", "no explicit type tags"),
        ("a: !!timestamp x", "line 1", "no explicit type tags"),
        ("--- 1\n--- 2", "line 2", "expected one document"),
        ("a: &a [*a]", "line 1", "an alias that does not contain itself"),
        ("a: &a\n  b: *a", "line 2", "an alias that does not contain itself"),
        (BOMB, "line 7", "at most 5000000 values"),
        ("[" * 100_000, "line 1", "at most 32 levels"),
        ("- " * 100_000 + "x", "line 1", "at most 32 levels"),
        ("a: " + "9" * 5000, "line 1", "expected a shorter number"),
        ("a: \x00", "", "not valid YAML"),
        ("a: \ud800", "", "not valid YAML"),
        (" " * (MAX_CHARACTERS + 1), "", "expected at most"),
    ],
)
def test_wrong_yaml(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_document(text, "x.yaml")
    assert error.value.place == place
    assert problem in error.value.problem
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('{"a": 1,\n "a": 2}', "", "duplicate key 'a'"),
        ('{"a": NaN}', "", "NaN is not a number"),
        ('{"a": -Infinity}', "", "-Infinity is not a number"),
        ('{"a": 1,\n}', "line 2", "not valid JSON"),
        ("a: 1", "line 1", "not valid JSON"),
        ("[" * 100_000, "", "not nested so deeply"),
        ("9" * 5000, "", "not valid JSON"),
    ],
)
def test_wrong_json(text: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_document(text, "x.json")
    assert error.value.place == place
    assert problem in error.value.problem


@pytest.mark.parametrize("style", [None, True, False])
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text("abc \n'\"#:-{}[],&*é", max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz ", max_size=3), inner, max_size=4),
        max_leaves=12,
    )
)
def test_what_the_library_writes_is_read_back(value: Any, style: bool | None) -> None:
    assert load_document(yaml.safe_dump(value, default_flow_style=style), "x.yaml") == value


@given(st.text(alphabet="ab:{}[],&*!?-# \n'\"0.<|>", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for name in ("x.yaml", "x.json"):
        try:
            load_document(text, name)
        except ConfigError as error:
            assert str(error).startswith(name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: can't be read: No such file"):
        read_file(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        read_file(tmp_path)
    with pytest.raises(ConfigError, match="can't be read"):
        read_file("nul\0byte")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(ConfigError, match="expected UTF-8 text: byte 9 is not"):
        read_file(tmp_path / "latin.yaml")
    with (tmp_path / "big.yaml").open("wb") as file:
        file.truncate(MAX_CHARACTERS + 1)
    with pytest.raises(ConfigError, match="expected at most 8388608 bytes"):
        read_file(tmp_path / "big.yaml")

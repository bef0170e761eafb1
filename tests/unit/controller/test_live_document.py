"""The log behind the live document: what it tells, put together, is the whole document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.model.live_document import AFTER_RESTART, FIRST, TOO_OLD, Difference, LiveLog

PART = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
DOCUMENTS = st.lists(st.fixed_dictionaries({"links": PART, "flows": PART}), min_size=1, max_size=12)
Document = dict[str, dict[str, Any]]


def applied(known: Document, told: Difference) -> Document:
    """As a reader does it."""
    if told.since is None:
        return {section: dict(parts) for section, parts in told.changed.items() if parts}
    found = {section: dict(parts) for section, parts in known.items()}
    for section, ids in told.gone.items():
        for one in ids:
            found[section].pop(one, None)
    for section, parts in told.changed.items():
        found.setdefault(section, {}).update(parts)
    return {section: parts for section, parts in found.items() if parts}


@given(DOCUMENTS, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 3))
def test_what_changed_put_together_is_the_whole_document(
    documents: list[Document], reads: list[bool], max_gone: int
) -> None:
    log = LiveLog(1000, max_gone=max_gone)
    known: Document = {}
    version: int | None = None
    for document, asks in zip(documents, reads, strict=False):
        before = log.version
        assert log.version - before == 0
        assert log.update(document) == (log.version == before + 1)
        if asks:
            told = log.since(version)
            known, version = applied(known, told), told.version
            whole = log.since(None)
            assert known == {section: parts for section, parts in document.items() if parts}
            assert applied({}, whole) == known and whole.reason == FIRST


@given(DOCUMENTS)
def test_without_a_change_nothing_is_told_and_the_version_stays(documents: list[Document]) -> None:
    log = LiveLog(5)
    for document in documents:
        log.update(document)
        version = log.version
        assert not log.update(document) and log.version == version
        assert log.since(version) == Difference(version, version, None, {}, {})


def test_only_what_changed_is_told() -> None:
    log = LiveLog(10)
    log.update({"links": {"a": 1, "b": 1}})
    log.update({"links": {"a": 2, "c": 1}})
    assert log.since(11) == Difference(11, 12, None, {"links": {"c": 1, "a": 2}}, {"links": ["b"]})


def test_versions_of_another_run_and_too_old_ones_get_everything_and_are_told_so() -> None:
    log = LiveLog(10, max_gone=1)
    log.update({"links": {"a": 1, "b": 1, "c": 1}})
    log.update({"links": {"c": 1, "b": 1}})
    log.update({"links": {"c": 1}})
    for version, reason in ((9, AFTER_RESTART), (14, AFTER_RESTART), (0, AFTER_RESTART), (11, TOO_OLD), (None, FIRST)):
        told = log.since(version)
        assert (told.since, told.reason, told.changed, told.gone) == (None, reason, {"links": {"c": 1}}, {})
    assert log.since(12).gone == {"links": ["b"]}

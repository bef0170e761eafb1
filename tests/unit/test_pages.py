"""The documentation: its names in the code, its pages made from the program, and pages whose commands need no root."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from hyroads.controller.cli import main as cli
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.settings import controller as settings
from hyroads.mininet.demos import DEMOS

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import docs_site
from page_session import DOCS, ROOT, Step, blocks, follow, needs_root, pages, shows, steps

GUIDES = pages("tutorials", "how-to")
PAGES = sorted(DOCS.rglob("*.md"))
HYROADS = [sys.executable, "-m", "hyroads.controller.cli"]
MADE_UP = {"my_plot.py", "way_back.py"}
"""Files of examples, which the reader writes."""
# What a page may say without a test that types it: it changes the machine, or needs what is not here.
OF_OTHER_MACHINES = {"access-point-debian", "access-point-openwrt", "backhaul", "packages", "power-line"}
"""Guides for hardware that is not here; what they install is tested in tests/packaging."""
UNTYPED = {
    *("apt", "apt-get", "dpkg", "apk", "opkg", "uci", "systemctl", "systemd-sysusers", "journalctl", "ovs-vsctl", "ip"),
    *("chown", "podman", "logread", "/etc/init.d/hyroads-edge", "/etc/init.d/hyroads-ap"),
    *("make", "git", "cd", "cp", "ln", "mkdir", "install", "export", "kill", "curl", "openssl", "mptcpize", "rm"),
    *("python3", ".venv/bin/python", "scripts/guest.sh", "scripts/cross.sh", "hyroads", "hyroads-edge"),
    *("pip", "dask", "iw", "cat"),
}


def sources() -> list[Path]:
    """Everything of the repository that is text and no history."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.splitlines() if name != "CHANGELOG.md"]
    return [
        ROOT / name for name in names if name.endswith((".py", ".rs", ".sh", ".md", ".yaml", ".yml", ".toml", "file"))
    ]


def test_every_page_that_is_named_anywhere_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path.is_file()
        for name in re.findall(r"\bdocs/[a-z/-]+\.(?:md|svg)\b", path.read_text())
        if not (ROOT / name).is_file()
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_of_the_source_names_folders_and_files_that_exist() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|") and "/`" in line]
    assert len(rows) > 30
    for row in rows:
        _, _, where, files, _ = row.split("|")
        folders = [ROOT / name for name in re.findall(r"`([a-z_/-]+/)`", where)]
        assert folders and all(folder.is_dir() for folder in folders), row
        named = re.findall(r"`([a-z_]+\.(?:py|rs))`", files)
        assert all(any((folder / name).is_file() for folder in folders) for name in named), row


def test_the_layers_are_those_that_are_held() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text().split("those below it only:\n\n")[1]
    shown = [line.strip().replace(", ", " | ") for line in text.split("\n\n")[0].splitlines() if "```" not in line]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = next(contract["layers"] for contract in contracts if contract.get("containers") == ["hyroads.controller"])
    assert shown == held
    folders = {path.name for path in (ROOT / "controller").iterdir() if (path / "__init__.py").is_file()}
    assert folders == {name for layer in held for name in layer.split(" | ")}
    assert [path.name for path in (ROOT / "controller").glob("*.py")] == ["__init__.py"]


def test_every_section_of_a_page_that_is_named_in_the_source_exists() -> None:
    """``docs/reference/rest.md, section 5`` is a heading that begins with ``5.``."""
    name = re.compile(r"\b(docs/[a-z/-]+\.md),?\s(?:[#/*!]+\s)?sections?\s(\d+)")
    wrong = [
        f"{path.relative_to(ROOT)}: {page}, section {number}"
        for path in sources()
        if path.is_file()
        for page, number in name.findall(path.read_text())
        if not re.search(rf"^## {number}\. ", (ROOT / page).read_text(), re.MULTILINE)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    """A path may leave out its first folders."""
    names = set(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    ends = {name.split("/", i)[-1] for name in names for i in range(8)}
    known = ends | {block.title for block in blocks(page)} | MADE_UP
    named = re.findall(r"(?<![\w./-])((?:[a-z0-9_-]+/)*[a-z0-9_]+\.(?:py|rs))\b", page.read_text())
    assert [name for name in named if name not in known] == []
    tops = {name.split("/")[0] for name in names}
    folders = [name for name in re.findall(r"`((?:[a-z0-9_-]+/)+)`", page.read_text()) if name.split("/")[0] in tops]
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#:]+\.md)", (DOCS / "index.md").read_text()))
    assert linked == {str(page.relative_to(DOCS)) for page in PAGES if page.name != "index.md"}


def test_readme_lists_every_demo_and_only_demos() -> None:
    table = (ROOT / "README.md").read_text().split("## Demos\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)) == sorted(DEMOS)


def test_the_reference_of_commands_is_what_help_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """One command of each kind, as a user sees it; all others and all verbs are there."""
    page = docs_site.on_page_markdown(docs_site.MARKER)
    for words in (["plan"], ["slices"], ["slices", "add-flowspace"], ["handover", "begin"]):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        assert " ".join(capsys.readouterr().out.split()) in " ".join(page.split())
    for name in docs_site.COMMANDS:
        parser = docs_site.parser_of(name)
        assert f"## `hyroads {name}`\n" in page
        assert all(f"### `hyroads {name} {verb}`\n" in page for verb in docs_site.verbs_of(parser))


def test_other_pages_are_not_touched() -> None:
    assert docs_site.on_page_markdown("# A page\n") == "# A page\n"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- keys: " in page.read_text()], ids=lambda page: page.stem
)
def test_a_reference_explains_every_key_that_its_parser_takes(page: Path) -> None:
    for name in re.findall(r"<!-- keys: (.+) -->", page.read_text()):
        assert docs_site.missing_keys(page.read_text(), name) == []
    assert "<!-- keys" not in docs_site.on_page_markdown(page.read_text())


def test_every_kind_of_file_has_its_reference() -> None:
    marked = {name for page in PAGES for name in re.findall(r"<!-- keys: (.+) -->", page.read_text())}
    assert marked | {"slices"} == set(docs_site.PARSERS), "slices are a part of the slicer's settings"


def test_keys_are_found_at_every_depth() -> None:
    keys = docs_site.keys_of(docs_site.PARSERS["network file"])
    assert set(keys) == {
        "", "nodes.NAME", "links[]", "interference", "technologies.NAME", "technologies.NAME.radio", "flows[]",
        "flows[].utility", "flows[].match", "flows[].padding", "nodes.NAME.waypoint", "hosts.NAME"
    }  # fmt: skip
    assert "attached_to" in keys["nodes.NAME"] and keys["flows[].utility"] == ("alpha",)
    listen = docs_site.keys_of(docs_site.PARSERS["settings"])["listen.openflow"]
    assert listen == ("host", "port", "allow_plaintext")


def test_a_key_that_a_page_leaves_out_ends_the_build() -> None:
    page = (DOCS / "reference" / "network-file.md").read_text()
    with pytest.raises(docs_site.DocumentationError, match=r"does not explain: links\[\]\.delay_ms$"):
        docs_site.on_page_markdown(page.replace("delay_ms", "later"))


def test_the_examples_of_the_slicers_page_are_valid() -> None:
    slices, settings_, opt_in, users = (
        yaml.safe_load(block.text) for block in blocks(DOCS / "reference" / "slicer.md") if block.language == "yaml"
    )
    assert docs_site.PARSERS["slices"](slices)
    assert docs_site.PARSERS["slices"](opt_in)
    assert docs_site.PARSERS["slicer"]({**settings_, "slices": slices["slices"], **users})


def documented_settings() -> dict[str, object]:
    text = next(block.text for block in blocks(DOCS / "reference" / "settings.md") if block.title == "hyroads.yaml")
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def test_the_settings_of_the_page_are_the_defaults() -> None:
    given = settings.parse(documented_settings(), "hyroads.yaml", {})
    default = settings.parse({"network": "network.yaml", "margin": 0.05}, "hyroads.yaml", {})
    assert given == default


def test_the_page_of_settings_has_them_all() -> None:
    """Every key that the parser knows, so every field of the result."""
    document = documented_settings()
    ports = {"openflow", "agents", "rest", "peer"}
    assert set(document["listen"]) == ports  # type: ignore[call-overload]
    assert {each.name for each in fields(settings.Settings)} - ports == set(document) - {"listen"}
    with pytest.raises(ConfigError, match="unknown key"):
        settings.parse({**document, "colour": "blue"}, "hyroads.yaml", {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_block_is_closed_and_has_a_language(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)
    assert all(fences[::2]) and not any(fences[1::2])


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_of_a_guide_is_typed_or_says_why_not(page: Path) -> None:
    found = blocks(page)
    # Else a block could be overlooked: one is found wherever there is a fence.
    assert len(found) * 2 == len(re.findall(r"^ *```", page.read_text(), re.MULTILINE))
    assert {block.language for block in found} <= {"console", "text", "yaml", "json", "python", "ini", "sh"}
    for block in found:
        if block.language != "console":
            continue
        assert block.note in ("", "stays") or re.match(r"not run: \w+ \w+", block.note), block
        if not block.typed:
            words = {step.words.split()[0] for step in steps(block)}
            assert words <= UNTYPED, f"{page.name}:{block.line}: {words - UNTYPED}"
    assert any(block.typed for block in found) or page.stem in OF_OTHER_MACHINES


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_prose_has_lines_of_at_most_100_columns(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """Else the site shows them as running text."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    wrong = []
    before = ""
    for line in text.splitlines():
        for mark, goes_on in (("- ", r" *- |  +\S|#"), ("| ", r"\||#")):
            if line.startswith(mark) and before and not re.match(goes_on, before):
                wrong.append(line[:80])
        before = line
    assert wrong == []


@pytest.mark.parametrize(
    ("output", "wanted", "missing"),
    [
        ("a  b\nc\n", ("a b", "c"), None),
        ("c\na b\n", ("a b", "c"), "c"),
        ("3 received, 0% packet loss, time 2ms\n", ("3 received, 0% packet loss...",), None),
        ("3 received, 10% packet loss\n", ("3 received, 0% packet loss...",), "3 received, 0% packet loss..."),
        ("f1: a -> c\nother\nrate 9.50 Mb/s\n", ("f1: a -> c", "...", "rate ... Mb/s"), None),
        ("1.5 Mb/s\n", ("1x5 Mb/s",), "1x5 Mb/s"),
    ],
)
def test_output_is_compared_line_by_line_in_order(output: str, wanted: tuple[str, ...], missing: str | None) -> None:
    assert shows(output, wanted) == missing


def page_with(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_what_is_typed_and_what_is_shown_are_told_apart(tmp_path: Path) -> None:
    page = page_with(tmp_path, '<!-- stays -->\n```console title="Terminal 2"\n# one\nout\n$ two\n```\n')
    [block] = blocks(page)
    assert (block.title, block.line) == ("Terminal 2", 2)
    assert steps(block) == [Step("# ", "one", ("out",)), Step("$ ", "two", (), stays=True)]
    assert needs_root(page)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "no line like 'two'"),
        ("```console\n$ false\n```\n", "ready 1"),
        ('```yaml title="x.yaml"\na: 1\n```\n\n```console\n$ grep b x.yaml\n```\n', "ready 1"),
    ],
)
def test_a_page_that_says_something_wrong_fails(tmp_path: Path, text: str, complaint: str) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    with pytest.raises(AssertionError, match=complaint):
        follow(page_with(tmp_path, text), folder)

"""The pages hang together: links lead somewhere, commands exist, nothing speaks of one machine alone."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from pages import DOCS, ROOT, anchors, blocks, markdown_files, read, text_files, without_blocks

from lucius.cli.main import cli

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:^|[\s;|&(]|\.venv/bin/)lucius((?: +[^\s;|&)]+)*)", re.MULTILINE)
_PACKAGE_HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "registry" + ".npmjs", "registry" + ".yarnpkg")
_MACHINE_PATHS = re.compile(rf"(?<![\w.])(?<!:/)(?:/root|/home/\w+|/Users/\w+|{re.escape(str(ROOT))})/[\w.]")


def packages() -> list[str]:
    source = ROOT / "src" / "lucius"
    return sorted(path.parent.relative_to(ROOT).as_posix() for path in source.rglob("__init__.py"))


def test_readme_names_the_two_commands() -> None:
    page = read(ROOT / "README.md")
    commands = [content.strip() for _, content in blocks(page)]
    assert "make run" in commands
    assert "make test" in commands


def test_make_targets_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read(ROOT / "Makefile"), re.MULTILINE))
    for path in markdown_files():
        for target in re.findall(r"`make ([a-z]+)`|^make ([a-z]+)$", read(path), re.MULTILINE):
            assert set(filter(None, target)) <= targets, f"{path.name}: make {target}"


def test_architecture_names_every_package() -> None:
    page = read(ROOT / "ARCHITECTURE.md")
    for package in packages():
        if package != "src/lucius":
            assert f"| [`{package}`]({package}) | " in page, f"ARCHITECTURE.md does not name {package}"
    for path in sorted((ROOT / "src" / "lucius").glob("*.py")):
        assert path.stem == "__init__" or f"(src/lucius/{path.name})" in page, path.name


def test_index_names_every_page() -> None:
    page = read(DOCS / "README.md")
    alerts = DOCS / "operate" / "alerts"  # They have an index of their own, which tests/deploy reads.
    for path in sorted(DOCS.rglob("*.md")):
        if path != DOCS / "README.md" and (path.parent != alerts or path.name == "README.md"):
            assert f"]({path.relative_to(DOCS).as_posix()})" in page, path


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(path: Path) -> None:
    for link in _LINK.findall(without_blocks(read(path))):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{path.name} links to {link}"
        assert target.is_relative_to(ROOT), f"{path.name} links out of the repository: {link}"
        if anchor:
            assert anchor in anchors(read(target)), f"{path.name} links to {link}"


def test_decisions_have_their_three_parts() -> None:
    found = sorted((DOCS / "decisions").glob("*.md"))
    assert [path.name[:4] for path in found] == [f"{number:04d}" for number in range(1, len(found) + 1)]
    for path in found:
        page = read(path)
        headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], path.name
        assert page.startswith(f"# {path.name[:4]}: "), path.name


# --- Commands --------------------------------------------------------------------------------------------------------


def commands_in(page: str) -> list[list[str]]:
    """The words after `lucius`, wherever a page shows a command."""
    shown = [content for language, content in blocks(page) if language in ("", "bash", "sh")]
    shown += [code for code in _CODE.findall(without_blocks(page)) if code.startswith(("lucius ", ".venv/bin/lucius "))]
    text = "\n".join(re.sub(r"#.*", "", one) for one in shown)
    # There `lucius` names a release, or a namespace.
    text = re.sub(r"^(?:helm|kubectl (?:create|label|config)) .*$", "", text, flags=re.MULTILINE)
    return [words.split() for words in _COMMAND.findall(text) if words.strip()]


def test_commands_in_the_pages_exist() -> None:
    seen = 0
    for path in markdown_files():
        for words in commands_in(read(path)):
            command: click.Command = cli
            for word in words:
                if word == "--":
                    break  # What follows is another program's command line.
                if isinstance(command, click.Group):
                    if word.startswith(("-", "[", "…")) or word in ("COMMAND", "URL]", "KEY]", "is"):
                        continue  # An option of the program itself, or the page's own way to say "some command".
                    assert word in command.commands, f"{path.name}: lucius {' '.join(words)}"
                    command, seen = command.commands[word], seen + 1
                elif word.startswith("--"):
                    options = {option for parameter in command.params for option in (*parameter.opts, "--help")}
                    assert word.partition("=")[0] in options, f"{path.name}: lucius {' '.join(words)}"
    assert seen > 20


# --- Every file ------------------------------------------------------------------------------------------------------


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    for path in text_files():
        text = path.read_text("utf-8", "replace")
        name = path.relative_to(ROOT).as_posix()
        for host in _PACKAGE_HOSTS:
            assert host not in text, f"{name} names {host}"
        found = _MACHINE_PATHS.search(text)
        assert found is None, f"{name} names a path of one machine: {text[found.start() :][:60] if found else ''}"

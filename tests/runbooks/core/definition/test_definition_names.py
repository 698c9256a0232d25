"""Names: of runbooks, of the tables made from them, of a source's columns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.runbooks.core.definition.names import (
    COLUMNS_MAX,
    IDENTIFIER_BYTES_MAX,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    VERSION_MAX,
    check_name,
    column_fault,
    columns_faults,
    data_table_name,
    quoted,
    sanitize,
    tables_collide,
)


def test_table_is_named_after_runbook_and_version() -> None:
    assert data_table_name("contoso-mailbox-migration", 3) == "runbook_contoso_mailbox_migration_v3"


@pytest.mark.parametrize(
    ("name", "sane"),
    [("A  -b", "a_b"), ("a__b", "a_b"), ("x; DROP TABLE y", "x_drop_table_y"), ("acme-eu.a_", "acme_eu__a_")],
)
def test_sanitized_name_has_letters_digits_and_single_underscores(name: str, sane: str) -> None:
    assert sanitize(name) == sane


@given(st.from_regex(NAME_PATTERN, fullmatch=True), st.integers(1, VERSION_MAX))
def test_table_name_fits_an_identifier_whatever_the_name(name: str, version: int) -> None:
    table = data_table_name(name, version)
    assert re.fullmatch(r"runbook_[a-z0-9_]+_v[0-9]+", table)
    assert len(table) <= IDENTIFIER_BYTES_MAX
    assert quoted(table) == f'"{table}"'


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1a",
        "_a",
        "a" * (NAME_CHARS_MAX + 1),
        "a;b",
        'a"b',
        "a\n",
        "ä",
        "-",
        "acme.",
        ".a",
        "Acme.a",
        "a.b.c",
        "acme.1",
        "a" * 65 + ".a",
    ],
)
def test_name_that_no_runbook_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="begins with a letter"):
        check_name(name)
    with pytest.raises(ValueError, match="begins with a letter"):
        data_table_name(name, 1)


@pytest.mark.parametrize("version", [0, -1, VERSION_MAX + 1])
def test_version_that_is_none_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="not a runbook version"):
        data_table_name("a", version)


def test_tables_collide_when_different_names_sanitize_alike() -> None:
    assert tables_collide("mail-move", "Mail move")
    assert tables_collide("mail_move", "mail--move")
    assert not tables_collide("mail-move", "mail-move")
    assert not tables_collide("mail-move", "mailmove")


def test_tables_of_tenants_collide_only_if_their_ids_sanitize_alike() -> None:
    assert not tables_collide("acme.mail", "acme-mail")
    assert not tables_collide("acme.mail-move", "acme-mail.move")
    assert tables_collide("acme.mail", "acme.Mail")
    assert tables_collide("ac-me.mail", "ac_me.mail")
    long = "0d0b7f5e-4f0c-4b0e-9a5e-0123456789ab"
    assert not tables_collide(f"{long}.mailbox-migration", f"{long}.mailbox-migratio")
    assert tables_collide(f"{long}.mailbox-migration", f"{long}.mailbox migration")


@pytest.mark.parametrize("name", ["Key", "Größe", "E-Mail (work)", "a.b@c#1/2", "x_", "1st", "名前", "a" * 63])
def test_column_of_plain_characters_is_used(name: str) -> None:
    assert column_fault(name) is None
    assert quoted(name) == f'"{name}"'


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "no name"),
        ("_row_id", "begins with _"),
        (" Key", "space"),
        ("Key ", "space"),
        ("a" * 64, "63 bytes"),
        ("ä" * 32, "63 bytes"),
        ('a"b', "rename"),
        ("a;b", "rename"),
        ("a'b", "rename"),
        ("a\\b", "rename"),
        ("a$b", "rename"),
        ("a:b", "rename"),
        ("a{b}", "rename"),
        ("a\x00b", "rename"),
        ("a\nb", "rename"),
        ("a\u202eb", "rename"),
        ("=cmd", "rename"),
    ],
)
def test_column_that_cannot_be_used_says_why(name: str, word: str) -> None:
    fault = column_fault(name)
    assert fault is not None
    assert word in fault
    assert fault.isprintable()


def test_columns_that_differ_by_letter_case_are_named_together() -> None:
    assert columns_faults(["Key", "Name"]) == []
    (fault,) = columns_faults(["Key", "Name", "KEY"])
    assert "'Key' and 'KEY'" in fault
    (fault,) = columns_faults(["Key", "Key"])
    assert "'Key' and 'Key'" in fault


def test_columns_have_a_limit() -> None:
    assert columns_faults(f"c{number}" for number in range(COLUMNS_MAX)) == []
    (fault,) = columns_faults(f"c{number}" for number in range(COLUMNS_MAX + 1))
    assert str(COLUMNS_MAX) in fault


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b", "a$b", "a:b", "a\x00b", "a\nb", "a\x85b", "\ud800", "a" * 64])
def test_identifier_that_could_say_more_is_not_quoted(name: str) -> None:
    with pytest.raises(ValueError):
        quoted(name)


@given(st.text(max_size=80))
def test_column_that_is_used_can_be_quoted(name: str) -> None:
    if column_fault(name) is None:
        assert quoted(name) == f'"{name}"'

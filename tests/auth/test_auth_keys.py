"""API keys: one by setting, many by file, changed while LUCIUS runs."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from lucius.auth import ROLES, Authenticator, Principal
from lucius.auth.key_file import KeysFault, read_keys
from lucius.auth.keys import CHECK_SECONDS, ApiKeys
from lucius.domain.errors import CallerError
from lucius.settings import Settings, SettingsError


def entry(key: str, name: str = "team", tenants: str = "[acme]", roles: str = "[read]") -> str:
    return f'- name: {name}\n  sha256: "{sha256(key.encode()).hexdigest()}"\n  tenants: {tenants}\n  roles: {roles}\n'


def write(path: Path, text: str) -> None:
    """Write so that the change shows, however coarse the file system's clock."""
    stamp = path.stat().st_mtime_ns + 1_000_000_000 if path.exists() else None
    path.write_text(text)
    if stamp is not None:
        os.utime(path, ns=(stamp, stamp))


class Ticks:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_admin_may_everything_and_others_only_what_they_hold() -> None:
    admin = Principal("root", None, frozenset({"admin"}))
    reader = Principal("team", frozenset({"acme"}), frozenset({"read"}))
    assert all(admin.may(role) for role in ROLES)
    assert [role for role in sorted(ROLES) if reader.may(role)] == ["read"]
    assert admin.sees("anyone")
    assert reader.sees("acme")
    assert not reader.sees("globex")


async def test_one_key_of_the_settings_opens_everything() -> None:
    authenticator = Authenticator(Settings(api_key="s3cret-key-of-the-test"))
    principal = await authenticator.authenticate("Bearer s3cret-key-of-the-test")
    assert principal.tenants is None
    assert principal.roles == ROLES
    assert authenticator.known("Bearer s3cret-key-of-the-test") is principal
    assert await authenticator.authenticate("bearer   s3cret-key-of-the-test ") == principal


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-key",
        "Bearer s3cret-key-of-the-tes",
        "Bearer s3cret-key-of-the-test x",
        "Basic s3cret-key-of-the-test",
        "s3cret-key-of-the-test",
        "Bearer a.b.c",
        "Bearer " + "x" * 20_000,
        "Bearer \udcff",
    ],
)
async def test_other_headers_are_unauthenticated_and_not_repeated(header: str | None) -> None:
    authenticator = Authenticator(Settings(api_key="s3cret-key-of-the-test"))
    assert authenticator.known(header) is None
    with pytest.raises(CallerError) as caught:
        await authenticator.authenticate(header)
    assert caught.value.code == "UNAUTHENTICATED"
    assert caught.value.status == 401
    credential = (header or "").rpartition(" ")[2]
    assert len(credential) < 7 or credential not in str(caught.value)


async def test_nobody_gets_in_where_nothing_is_configured() -> None:
    authenticator = Authenticator(Settings())
    assert not authenticator.is_configured
    with pytest.raises(CallerError, match="LUCIUS_API_KEY"):
        await authenticator.authenticate("Bearer x")


@pytest.mark.parametrize("key", ["with space", "newline\n", "ü", "x" * 600])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_API_KEY") as caught:
        Authenticator(Settings(api_key=key))
    assert key not in str(caught.value)


async def test_a_key_file_gives_tenants_and_roles(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write(path, entry("k-one", "one", "[Acme, ' Globex ']", "[submit, read]") + entry("k-two", "two", '"*"', "[work]"))
    authenticator = Authenticator(Settings(api_keys_file=str(path)))
    one = await authenticator.authenticate("Bearer k-one")
    two = await authenticator.authenticate("Bearer k-two")
    assert one == Principal("key:one", frozenset({"acme", "globex"}), frozenset({"submit", "read"}))
    assert two == Principal("key:two", None, frozenset({"work"}))


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (entry("a") + entry("a", "other"), 6, "duplicate key"),
        (entry("a") + entry("b"), 5, "duplicate name team"),
        (entry("a") + "  note: x\n", 5, "note is not a field"),
        (entry("a") + "  roles: [read]\n", 5, "duplicate field roles"),
        (entry("a", roles="[read, king]"), 4, "'king' is not a role"),
        (entry("a", roles="[]"), 4, "roles must be a list"),
        (entry("a", roles="[1]"), 4, "is not a role"),
        (entry("a", tenants="acme"), 3, "tenants must be"),
        (entry("a", tenants="[]"), 3, "tenants must be"),
        (entry("a", tenants='["a/b"]'), 3, "tenant_id must not hold"),
        (entry("a", tenants='[acme, "*"]'), 3, "is every tenant"),
        ("- name: x\n  sha256: 12\n  tenants: '*'\n  roles: [read]\n", 2, "64 hex digits"),
        ("- name: x\n  tenants: '*'\n  roles: [read]\n", 1, "sha256 is missing"),
        ("keys: []\n", 1, "must contain a list"),
        ("- &a x\n- *a\n", 1, "anchors"),
        ("- !!str x\n", 1, "tags"),
        ("- just text\n", 1, "a key must be an object"),
        ("- name: {a: 1}\n", 1, "a string or a list of strings"),
        ("- name: x\n  tenants: [[a]]\n", 2, "must be a string"),
        ("- [a, b]: c\n", 1, "is not a field"),
        ("[]\n---\n[]\n", 2, "a single document"),
        ("[" * 100_000, 1, "a key must be an object"),
        ("# " + "x" * 1_100_000, 1, "more than"),
        ("- name: [\n", 2, ""),
    ],
)
def test_a_broken_key_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "keys.yaml"
    write(path, text)
    with pytest.raises(KeysFault, match=rf"keys\.yaml:{line}: .*{says}"):
        read_keys(path)
    with pytest.raises(SettingsError, match="LUCIUS_API_KEYS_FILE"):
        Authenticator(Settings(api_keys_file=str(path)))


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]\n"])
def test_an_empty_key_file_lets_nobody_in(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.yaml"
    write(path, text)
    assert read_keys(path) == {}


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Authenticator(Settings(api_keys_file=str(tmp_path / "none.yaml")))


def test_a_changed_file_is_in_force_after_two_seconds_and_a_broken_one_never(tmp_path: Path) -> None:
    path, ticks = tmp_path / "keys.yaml", Ticks()
    write(path, entry("old"))
    keys = ApiKeys("", str(path), ticks)
    assert keys.find("old") is not None
    write(path, entry("new"))
    assert keys.find("new") is None, "the file is looked at only every two seconds"
    ticks.now += CHECK_SECONDS
    assert keys.find("new") is not None
    assert keys.find("old") is None
    write(path, entry("worse", roles="[king]"))
    ticks.now += CHECK_SECONDS
    assert keys.find("new") is not None
    assert keys.find("worse") is None
    assert "keys.yaml:4" in str(keys.problem)
    path.unlink()
    ticks.now += CHECK_SECONDS
    assert keys.find("new") is not None
    write(path, entry("better"))
    ticks.now += CHECK_SECONDS
    assert keys.find("better") is not None
    assert keys.problem is None


def test_a_revoked_key_is_forgotten_by_the_fast_path(tmp_path: Path) -> None:
    path, ticks = tmp_path / "keys.yaml", Ticks()
    write(path, entry("old"))
    authenticator = Authenticator(Settings(api_keys_file=str(path)), ticks)
    assert authenticator.known("Bearer old") is not None
    assert authenticator.known("Bearer old") is authenticator.known("Bearer old")
    write(path, entry("new"))
    ticks.now += CHECK_SECONDS
    assert authenticator.known("Bearer old") is None
    assert authenticator.known("Bearer new") is not None


@pytest.mark.parametrize(
    ("limits", "services", "worker_ids"),
    [
        ("", None, None),
        ("  services: [ocr, sis]\n", {"ocr", "sis"}, set()),
        ("  worker_ids: [exchange]\n", set(), {"exchange"}),
        ('  services: "*"\n  worker_ids: [exchange]\n', None, {"exchange"}),
        ('  services: "*"\n', None, set()),
    ],
)
def test_a_key_may_be_limited_to_services_and_workers(
    tmp_path: Path, limits: str, services: set[str] | None, worker_ids: set[str] | None
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(entry("k" * 20) + limits)
    (principal,) = read_keys(path).values()
    assert (principal.services, principal.worker_ids) == (services, worker_ids)


@pytest.mark.parametrize(
    "limits", ["services: []", "services: ocr", 'worker_ids: [""]', "worker_ids: [[a]]", "workers: [a]"]
)
def test_a_limit_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, limits: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(entry("k" * 20) + f"  {limits}\n")
    with pytest.raises(KeysFault, match=r"keys.yaml:5: "):
        read_keys(path)

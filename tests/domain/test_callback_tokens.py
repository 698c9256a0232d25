"""Callback tokens: bound to one attempt, rotated by key id, expiring, and impossible to bend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lucius.domain.callbacks import TOKEN_GRACE_SECONDS, CallbackIds, CallbackKey, TokenSigner
from lucius.domain.time import after
from lucius.testing.samples import START

IDS = CallbackIds("acme", "job-1", "ocr", 2, "lease-9")
OLD, NEW = CallbackKey("k1", b"old secret"), CallbackKey("k2", b"new secret")
MAX_STEP_SECONDS = 600.0


@pytest.fixture
def signer() -> TokenSigner:
    return TokenSigner((NEW, OLD))


@pytest.fixture
def token(signer: TokenSigner) -> str:
    return signer.mint(IDS, START, MAX_STEP_SECONDS)


def test_token_verifies_for_its_own_ids(signer: TokenSigner, token: str) -> None:
    assert signer.verifies(token, IDS, START)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "globex"},
        {"job_id": "job-2"},
        {"step_id": "sis"},
        {"attempt_no": 3},
        {"attempt_no": 22},
        {"lease_id": "lease-8"},
        {"tenant_id": "Acme"},
    ],
)
def test_token_does_not_verify_for_other_ids(signer: TokenSigner, token: str, change: dict[str, object]) -> None:
    assert not signer.verifies(token, replace(IDS, **change), START)


def test_token_outlives_the_step_by_a_week_and_no_longer(signer: TokenSigner, token: str) -> None:
    assert TOKEN_GRACE_SECONDS == 7 * 86_400
    end = after(START, MAX_STEP_SECONDS + TOKEN_GRACE_SECONDS)
    assert signer.verifies(token, IDS, end - 1_000)
    assert not signer.verifies(token, IDS, end)


def test_token_names_its_key_so_that_keys_rotate(signer: TokenSigner, token: str) -> None:
    assert token.startswith("v1.k2.")
    older = TokenSigner((OLD,)).mint(IDS, START, MAX_STEP_SECONDS)
    assert signer.verifies(older, IDS, START)
    assert not TokenSigner((NEW,)).verifies(older, IDS, START)


def test_token_of_another_secret_under_the_same_key_id_is_forged(signer: TokenSigner) -> None:
    forged = TokenSigner((CallbackKey("k2", b"guessed"),)).mint(IDS, START, MAX_STEP_SECONDS)
    assert not signer.verifies(forged, IDS, START)


def test_token_cannot_be_made_to_last_longer(signer: TokenSigner, token: str) -> None:
    version, key, expiry, signature = token.split(".")
    assert not signer.verifies(f"{version}.{key}.{int(expiry) + 1}.{signature}", IDS, START)


def test_token_carries_no_id_and_no_secret(token: str) -> None:
    for part in ("acme", "job-1", "ocr", "lease", "secret"):
        assert part not in token


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "",
        ".",
        "v1",
        "v1.k2",
        "v1.k2.1",
        "v1.k2.1.",
        "v1.k2.-1.x",
        "v1.k2.1e9.x",
        "v1.k9.99999999999.x",
        "v2.k2.99999999999.x",
        "v1.k2.٣٤.x",
        "v1.k2." + "9" * 180 + ".x",
        "x" * 100_000,
        "\N{SNOWMAN}",
        "v1.k2.99999999999.\x00",
    ],
)
def test_token_that_is_none_does_not_verify(signer: TokenSigner, broken: str | None) -> None:
    assert not signer.verifies(broken, IDS, START)


@given(place=st.integers(min_value=0), letter=st.characters(min_codepoint=33, max_codepoint=126))
def test_token_with_any_letter_changed_does_not_verify(place: int, letter: str) -> None:
    signer = TokenSigner((NEW, OLD))
    token = signer.mint(IDS, START, MAX_STEP_SECONDS)
    at = place % len(token)
    changed = token[:at] + letter + token[at + 1 :]
    assert signer.verifies(changed, IDS, START) is (changed == token)


SPELLINGS = {
    "leading zero": lambda v, k, e, s: f"{v}.{k}.0{e}.{s}",
    "many leading zeros": lambda v, k, e, s: f"{v}.{k}.{e.zfill(40)}.{s}",
    "plus sign": lambda v, k, e, s: f"{v}.{k}.+{e}.{s}",
    "underscore": lambda v, k, e, s: f"{v}.{k}.{e[:1]}_{e[1:]}.{s}",
    "arabic digits": lambda v, k, e, s: f"{v}.{k}.{e.translate({48 + d: 0x660 + d for d in range(10)})}.{s}",
    "superscript": lambda v, k, e, s: f"{v}.{k}.{e}\u00b9.{s}",
    "padding": lambda v, k, e, s: f"{v}.{k}.{e}.{s}=",
    "plain base64": lambda v, k, e, s: f"{v}.{k}.{e}.{s.replace('-', '+').replace('_', '/')}=",
    "another part": lambda v, k, e, s: f"{v}.{k}.{e}.{s}.",
    "white space": lambda v, k, e, s: f"{v}.{k}. {e}.{s}",
    "line break": lambda v, k, e, s: f"{v}.{k}.{e}.{s}\n",
    "upper case": lambda v, k, e, s: f"{v.upper()}.{k}.{e}.{s}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_token_in_another_spelling_does_not_verify(token: str, spelling: str) -> None:
    """Another process has minted it, so that it is not remembered."""
    changed = SPELLINGS[spelling](*token.split("."))
    assert changed != token
    assert not TokenSigner((NEW, OLD)).verifies(changed, IDS, START)


@given(
    place=st.integers(0, 200),
    cut=st.integers(0, 3),
    put=st.text(st.sampled_from("0123456789.+-_=\u0660\u00b2 v"), max_size=3),
)
def test_only_the_exact_token_verifies(place: int, cut: int, put: str) -> None:
    token = TokenSigner((NEW,)).mint(IDS, START, MAX_STEP_SECONDS)
    at = place % (len(token) + 1)
    changed = token[:at] + put + token[at + cut :]
    assert TokenSigner((NEW, OLD)).verifies(changed, IDS, START) is (changed == token)


def test_signer_needs_a_key() -> None:
    with pytest.raises(ValueError, match="key"):
        TokenSigner(())

"""Identities for a NATS server in tests: nkeys, and the credentials file of a user of an account of an operator."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import nkeys


class KeyPair(NamedTuple):
    seed: str
    public: str
    pair: Any


def key_pair(prefix: int) -> KeyPair:
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    pair = nkeys.from_seed(bytearray(seed))
    return KeyPair(bytes(seed).decode(), bytes(pair.public_key).decode(), pair)


def user_key() -> KeyPair:
    return key_pair(nkeys.PREFIX_BYTE_USER)


class Identities(NamedTuple):
    server_config: str
    credentials: str


def identities() -> Identities:
    operator, account = key_pair(nkeys.PREFIX_BYTE_OPERATOR), key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    system, user = key_pair(nkeys.PREFIX_BYTE_ACCOUNT), user_key()
    unlimited = dict.fromkeys(("subs", "data", "payload"), -1)
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    limits = {**unlimited, **storage, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    operator_token = _signed(operator, operator.public, {"type": "operator", "version": 2})
    account_token = _signed(operator, account.public, {"type": "account", "version": 2, "limits": limits})
    user_token = _signed(account, user.public, {"type": "user", "version": 2, **unlimited})
    system_token = _signed(operator, system.public, {"type": "account", "version": 2})
    config = (
        f"operator: {operator_token}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {account_token}, {system.public}: {system_token} }}\n"
    )
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return Identities(config, credentials)


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def _signed(issuer: KeyPair, subject: str, claims: dict[str, Any]) -> str:
    head = _encoded({"typ": "JWT", "alg": "ed25519-nkey"})
    body = _encoded({"jti": subject, "iat": int(time.time()), "iss": issuer.public, "name": "test", "sub": subject,
                     "nats": claims})  # fmt: skip
    signature = issuer.pair.sign(f"{head}.{body}".encode())
    return f"{head}.{body}.{_base64(bytes(signature))}"


def _encoded(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

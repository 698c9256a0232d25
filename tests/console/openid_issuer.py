"""A real issuer of OpenID Connect, npm's `oidc-provider`, in a process of its own on `localhost`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from tests import node_packages

SCRIPT = Path(__file__).with_suffix(".mjs")
PEOPLE = {
    "ann": {"roles": ["read", "operate", "submit"], "tenants": ["*"], "preferred_username": "ann@example.org"},
    "reader": {"roles": "read", "tenants": ["acme"], "preferred_username": "<i>reader</i>"},
    "stranger": {"tenants": ["*"], "preferred_username": "stranger@example.org"},
    "homeless": {"roles": ["read"], "preferred_username": "homeless@example.org"},
}


class Issuer:
    def __init__(self, cache: Path) -> None:
        packages = node_packages.install(cache, node_packages.OPENID_PROVIDER)
        command = [node_packages.node_program(), SCRIPT, packages]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.url = f"http://localhost:{self._line()}"

    def serve(self, clients: list[dict[str, Any]]) -> None:
        """Begin to answer, for these clients."""
        private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        key = RSAAlgorithm.to_jwk(private, as_dict=True) | {"kid": "k1", "use": "sig", "alg": "RS256"}
        key.pop("key_ops", None)
        self.tell(clients=clients, key=key, people=PEOPLE)

    def tell(self, **words: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        assert self._line() == "ready"

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> str:
        """The next line; whatever else the package prints is not for us."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready" or line.strip().isdigit():
                return line.strip()
        raise AssertionError("the issuer ended")

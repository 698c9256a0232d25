"""Signatures, checked against the published example and a calculation of the test's own."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from lucius.webhooks.signing import SecretUnusable, read_secrets, sign

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_of_standard_webhooks_comes_out_right() -> None:
    body = b'{"test": 2432232314}'
    signature = sign(read_secrets(WHSEC), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_several_secrets_all_sign() -> None:
    secrets = read_secrets(f"plain-text-secret  {WHSEC}")
    signatures = sign(secrets, "msg_1", 7, b"{}").split(" ")
    assert len(signatures) == 2
    for signature, secret in zip(signatures, (b"plain-text-secret", base64.b64decode(WHSEC[6:])), strict=True):
        expected = hmac.new(secret, b"msg_1.7.{}", hashlib.sha256).digest()
        assert signature == "v1," + base64.b64encode(expected).decode()


@pytest.mark.parametrize("text", ["", "   ", "whsec_", "whsec_!!!", "whsec_abc", "a b c d e"])
def test_what_cannot_sign_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SecretUnusable) as caught:
        read_secrets(text)
    assert len(text) < 7 or text not in str(caught.value)

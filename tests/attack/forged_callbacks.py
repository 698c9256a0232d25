"""Callbacks that nobody was given a token for: genuine ones, each changed in one place."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
from tests.attack.targets import Target

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
KINDS = ("ACK", "RESULT", "HEARTBEAT")
BATCH_SIZE = 250
SINGLE_EVERY = 25
"""One forgery in so many is also sent by itself."""
TOKEN_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

Directive = dict[str, Any]


def _with_part(token: str, index: int, part: str) -> str:
    parts = token.split(".")
    parts[index] = part
    return ".".join(parts)


def _changed_character(rng: random.Random, token: str) -> str:
    place = rng.randrange(len(token))
    other = rng.choice([one for one in TOKEN_CHARACTERS if one != token[place]])
    return token[:place] + other + token[place + 1 :]


def _respelled_expiry(rng: random.Random, token: str) -> str:
    expiry = token.split(".")[2]
    spellings = [
        f"0{expiry}", f"+{expiry}", f"-{expiry}", f" {expiry}", f"{expiry} ", f"{expiry[:3]}_{expiry[3:]}",
        "".join(chr(0x0660 + int(digit)) for digit in expiry), "".join(chr(0xFF10 + int(digit)) for digit in expiry),
        str(int(expiry) + rng.randrange(1, 10_000)), str(int(expiry) - rng.randrange(1, 10_000)), f"{expiry}0", "0", "",
        "9" * 30, f"{expiry}.0", f"0x{int(expiry):x}",
    ]  # fmt: skip
    return _with_part(token, 2, rng.choice(spellings))


def _respelled_frame(rng: random.Random, token: str) -> str:
    version, key, expiry, signature = token.split(".")
    return rng.choice(
        [
            "", ".", "...", "v1", token[: rng.randrange(len(token))], token + rng.choice(TOKEN_CHARACTERS), token * 2,
            token.upper(), token.swapcase(), f" {token}", f"{token} ", f"{token}\n", f"{token}=", f"{token}.",
            f"V1.{key}.{expiry}.{signature}", f"v2.{key}.{expiry}.{signature}", f"{version}.{key}.{signature}",
            f"{version}..{expiry}.{signature}", f"{version}.{key}x.{expiry}.{signature}", f"{version}.{key}.{expiry}.",
            f"{version}.{key}.{expiry}.{signature[::-1]}", f"Bearer {token}", "null", "x" * 201, "é" * 20,
            f"{version}.{key}.{expiry}.{urlsafe_b64encode(rng.randbytes(32)).decode().rstrip('=')}",
        ]
    )  # fmt: skip


def _other_ids(rng: random.Random, directive: Directive, others: list[Directive]) -> dict[str, Any]:
    body = {name: directive[name] for name in IDS}
    other = rng.choice([one for one in others if one["jobId"] != directive["jobId"]])
    field = rng.choice(IDS)
    changes: dict[str, Callable[[], Any]] = {
        "jobId": lambda: rng.choice([other["jobId"], str(directive["jobId"])[::-1], "", f"{directive['jobId']}\n"]),
        "stepId": lambda: rng.choice(["embedding", "sis", "OCR", "", "ocr\nocr"]),
        "tenant_id": lambda: rng.choice([other["tenant_id"] + "x", "rival", "*", "", f"{directive['tenant_id']}\nx"]),
        "attempt_no": lambda: directive["attempt_no"] + rng.choice([-1, 1, 2, 1_000, 2**40]),
        "lease_id": lambda: rng.choice([other["lease_id"], "", str(directive["lease_id"])[::-1]]),
    }
    return body | {field: changes[field]()}


def forgeries(rng: random.Random, directives: list[Directive], count: int) -> Iterator[dict[str, Any]]:
    """Callbacks as items of a batch, none of which is genuine."""
    made = 0
    while made < count:
        directive = rng.choice(directives)
        token = str(directive["callback_token"])
        other = rng.choice([one for one in directives if one is not directive])
        kind = rng.choice(KINDS)
        body = {name: directive[name] for name in IDS}
        match rng.randrange(5):
            case 0:
                forged = _changed_character(rng, token)
            case 1:
                forged = _respelled_expiry(rng, token)
            case 2:
                forged = _respelled_frame(rng, token)
            case 3:
                forged = str(other["callback_token"])
            case _:
                forged, body = token, _other_ids(rng, directive, directives)
        if forged == token and body == {name: directive[name] for name in IDS}:
            continue  # Nothing was changed after all.
        made += 1
        yield {
            "type": kind,
            **body,
            **({"status": rng.choice(["SUCCEEDED", "FAILED_FINAL"])} if kind == "RESULT" else {}),
            "callback_token": forged,
        }


async def send_forgeries(
    session: aiohttp.ClientSession, target: Target, directives: list[Directive], count: int, seed: int
) -> int:
    """Send so many, in batches and one by one, to every API in turn; each must be refused as what it is."""
    rng = random.Random(seed)
    sent = 0
    batch: list[dict[str, Any]] = []
    for number, item in enumerate(forgeries(rng, directives, count), start=1):
        batch.append(item)
        if number % SINGLE_EVERY == 0:
            await _send_single(session, rng.choice(target.urls), item)
        if len(batch) == BATCH_SIZE or number == count:
            url = f"{rng.choice(target.urls)}/v1/callbacks:batch"
            async with session.post(url, json={"callbacks": batch}) as answer:
                outcomes = (await answer.json())["outcomes"]
            assert len(outcomes) == len(batch)
            for forged, outcome in zip(batch, outcomes, strict=True):
                assert outcome.get("code") == "UNAUTHENTICATED", f"{forged} was answered {outcome}"
            sent += len(batch)
            batch = []
    return sent


async def _send_single(session: aiohttp.ClientSession, url: str, item: dict[str, Any]) -> None:
    body = {name: value for name, value in item.items() if name not in ("type", "callback_token")}
    token = item["callback_token"]
    is_sendable = token.isascii() and token.isprintable()
    headers = {"Lucius-Callback-Token": token} if is_sendable and token.strip() == token else {}
    if not headers:
        body["callback_token"] = token
    async with session.post(f"{url}/v1/callbacks/{item['type'].lower()}", json=body, headers=headers) as answer:
        problem = await answer.json()
        assert (answer.status, problem.get("code")) == (401, "UNAUTHENTICATED"), f"{item} was answered {problem}"

"""Behaviour of simulated workers: how long jobs take, which share fails, and how many workers there are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.durations import parse_duration
from lucius.yaml_text import YamlFault, YamlText, read_yaml

SLOW_FACTOR = 20
POLL_FACTOR = 0.1
"""A poll takes a tenth of the time of the first call."""
WORKERS_MAX = 100_000
POLL_ROUNDS_MAX = 10_000
SPREAD = 0.5
"""Sigma of the log-normal job time: two thirds of jobs take between 0.6 and 1.65 times the median."""

_SHARES = ("fail", "throttle", "lost", "slow")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")
_normal = NormalDist()


class BehaviourInvalid(ValueError):
    """A behaviour that cannot be used, with the reason."""


class Mix(Struct, frozen=True, kw_only=True):
    """Shares are from 0 to 1. If they exceed 1 in total, `fail` takes precedence over `throttle`, then `lost`."""

    duration_seconds: float = 30.0
    fail: float = 0.0
    """Share of the responses that would end a step."""
    throttle: float = 0.0
    lost: float = 0.0
    """Share of the jobs that never get a response."""
    slow: float = 0.0
    """Share of the steps whose jobs take 20 times as long and, if polled, need 20 times as many polls."""
    poll_rounds: int = 4
    """How many times a step with a poll reports that it is still running before it ends."""

    def __post_init__(self) -> None:
        for name in _SHARES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BehaviourInvalid(f"{name} must be a share from 0% to 100%")
        if not 0.0 < self.duration_seconds <= 365 * 86_400:
            raise BehaviourInvalid("duration must be above zero and at most 365d")
        if not 0 <= self.poll_rounds <= POLL_ROUNDS_MAX:
            raise BehaviourInvalid(f"poll_rounds must be a whole number from 0 to {POLL_ROUNDS_MAX}")


USUAL = Mix(fail=0.02, throttle=0.01, lost=0.005, slow=0.05)
"""The defaults of the command line."""


class Behaviour(Struct, frozen=True, kw_only=True):
    default: Mix = Mix()
    functions: Mapping[str, Mix] = {}
    """By function name as sent, with its variables filled in."""
    workers: int = 50
    """Concurrent jobs of each worker_id."""
    workers_of: Mapping[str, int] = {}

    def of(self, function: str) -> Mix:
        return self.functions.get(function, self.default)

    def slots(self, worker_id: str) -> int:
        return self.workers_of.get(worker_id, self.workers)


class Draw(Struct, frozen=True):
    """The random outcome of one job: the same for the same seed and job, whatever else happens."""

    duration_seconds: float
    ending: str
    """`success`, `fail`, `throttle` or `lost`."""
    is_slow: bool


def draw(seed: int, execution: str, job_id: str, mix: Mix) -> Draw:
    number = int.from_bytes(blake2b(f"{seed}/{job_id}".encode(), digest_size=16).digest(), "big")
    chance, other = (number >> 64) / 2**64, (number & (2**64 - 1)) / 2**64
    is_slow = mix.slow > 0.0 and _uniform(f"{seed}/{execution}/slow") < mix.slow
    factor = min(8.0, max(0.125, 2.718281828459045 ** (SPREAD * _normal.inv_cdf(min(max(other, 1e-9), 1 - 1e-9)))))
    seconds = mix.duration_seconds * factor * (SLOW_FACTOR if is_slow else 1)
    if chance < mix.fail:
        ending = "fail"
    elif chance < mix.fail + mix.throttle:
        ending = "throttle"
    else:
        ending = "lost" if chance < mix.fail + mix.throttle + mix.lost else "success"
    return Draw(seconds, ending, is_slow)


def _uniform(text: str) -> float:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


# --- The file --------------------------------------------------------------------------------------------------------


def parse_share(text: Any) -> float:
    """`2%` or a number from 0 to 1. Raises `BehaviourInvalid`."""
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text <= 1:
        return float(text)
    match = _PERCENT.fullmatch(str(text).strip())
    share = float(match[1]) / 100 if match else -1.0
    if not 0.0 <= share <= 1.0:
        raise BehaviourInvalid(f"{str(text)[:40]!r} is not a share: write it as 2% or 0.5%")
    return share


def parse_options(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `read_behaviour` from what people type: shares as `2%`, `duration` as `30s`; None is left out. Raises
    `BehaviourInvalid`."""
    options = {name: value for name, value in typed.items() if value is not None}
    for name in set(_SHARES) & options.keys():
        options[name] = parse_share(options[name])
    if "duration" in options:
        try:
            options["duration_seconds"] = float(parse_duration(options.pop("duration")))
        except ValueError as error:
            raise BehaviourInvalid(str(error)) from error
    return options


def read_behaviour(content: bytes, options: Mapping[str, Any] | None = None, usual: Mix = USUAL) -> Behaviour:
    """The behaviour in a YAML text. `options` override its `default` and `workers`, and those override `usual`.

    Raises `BehaviourInvalid`.
    """
    try:
        document = read_yaml(content)
    except YamlFault as fault:
        raise BehaviourInvalid(f"line {fault.line}: {fault.detail}") from fault
    value = {} if document.value is None else document.value
    _check(document, value, "", ("default", "functions", "workers"))
    chosen = dict(options or {})
    workers, workers_of = _workers(document, value.get("workers"))
    workers = chosen.pop("workers", workers)
    default = _mix(document, "/default", value.get("default"), usual)
    functions = value.get("functions") or {}
    _check(document, functions, "/functions", None)
    return Behaviour(
        default=_changed(default, chosen),
        functions={
            name: _mix(document, f"/functions/{name}", fields, _changed(default, chosen))
            for name, fields in functions.items()
        },
        workers=workers,
        workers_of=workers_of,
    )


def _changed(mix: Mix, fields: Mapping[str, Any]) -> Mix:
    made: Mix = msgspec.structs.replace(mix, **fields)
    return made


def _mix(document: YamlText, pointer: str, value: Any, before: Mix) -> Mix:
    value = {} if value is None else value
    _check(document, value, pointer, ("duration", *_SHARES, "poll_rounds"))
    fields: dict[str, Any] = {}
    try:
        fields |= {name: parse_share(value[name]) for name in _SHARES if name in value}
        if "duration" in value:
            fields["duration_seconds"] = float(parse_duration(str(value["duration"])))
        if "poll_rounds" in value:
            fields["poll_rounds"] = _whole(value["poll_rounds"], 0, POLL_ROUNDS_MAX, "poll_rounds")
        return _changed(before, fields)
    except ValueError as fault:
        raise BehaviourInvalid(f"line {document.line_of(pointer)}: {pointer}: {fault}") from fault


def _workers(document: YamlText, value: Any) -> tuple[int, dict[str, int]]:
    try:
        if isinstance(value, dict):
            return Behaviour().workers, {name: _whole(n, 1, WORKERS_MAX, name) for name, n in value.items()}
        return (Behaviour().workers if value is None else _whole(value, 1, WORKERS_MAX, "workers")), {}
    except BehaviourInvalid as fault:
        raise BehaviourInvalid(f"line {document.line_of('/workers')}: /workers: {fault}") from fault


def _whole(value: Any, least: int, most: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BehaviourInvalid(f"{name} must be a whole number from {least} to {most}")
    return value


def _check(document: YamlText, value: Any, pointer: str, known: tuple[str, ...] | None) -> None:
    line = document.line_of(pointer)
    if not isinstance(value, dict):
        raise BehaviourInvalid(f"line {line}: {pointer or 'the behaviour'} must be a mapping of keys and values")
    unknown = [key for key in value if known is not None and key not in known]
    if unknown:
        raise BehaviourInvalid(f"line {line}: {pointer}/{unknown[0]} is unknown; known: {', '.join(known or ())}")


def millis(seconds: float) -> Instant:
    return max(1, round(seconds * 1000))

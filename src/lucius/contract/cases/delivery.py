"""Directives of every kind arrive, are acknowledged and answered."""

from __future__ import annotations

from functools import partial
from typing import Any

from lucius.contract.case import case
from lucius.contract.directives import ACK_SECONDS
from lucius.contract.exchange import Attempt, Call
from lucius.contract.files import file_refs, output_of, path_of, workspace_of
from lucius.contract.stage import Stage

BACKLOG = 30
BACKLOG_SILENCE_SECONDS = 10.0
LARGE_CHARACTERS = 200_000
ODD_TENANT = "müller & söhne 100% 東京"


@case(
    "ack-in-time",
    checks="An ACK with the attempt's five ids and its token comes in time, before the RESULT or together with it",
    catches="a service that works first and acknowledges afterwards, or never",
    why="Without an ACK the directive is handed out again after a third of the ack timeout, and the attempt is lost "
    "when the timeout ends.",
    remedy="Send the ACK as soon as the directive is taken, and begin to work when it is answered.",
)
def ack_in_time(stage: Stage) -> None:
    attempt = stage.deliver()
    ack = stage.expect(attempt, "ACK", within_seconds=ACK_SECONDS)
    stage.check(not ack.faults, "an ACK with the directive's ids and token", "; ".join(ack.faults))
    result = stage.expect(attempt, "RESULT")
    together = ack.is_batched and result.is_batched
    happened = f"the ACK came {ack.at - result.at:.2f} s after the RESULT"
    stage.check(together or ack.at <= result.at, "the ACK before the RESULT, or in the same batch", happened)


@case(
    "result-good",
    checks="The sample's RESULT is `SUCCEEDED` and meets the schema; files that its artifacts name exist in the "
    "attempt's folder; `output_ref` is written, as the step is the job's last",
    catches="a RESULT of the wrong shape, artifacts that lead nowhere, files outside the workspace, a result nobody "
    "gets",
    why="Later steps read what the artifacts name, the client reads output_ref, and a folder of its own is what "
    "keeps one attempt's files from another's.",
    remedy="Write below workspace_ref only, name what is there, and copy the final result to output_ref when "
    "last_step is true. If the sample does not fit the service, give one with --input, --payload or --previous.",
)
def result_good(stage: Stage) -> None:
    attempt = stage.deliver()
    result = stage.expect_end(attempt)
    check_succeeded(stage, result)
    folder = workspace_of(attempt.directive).resolve()
    for ref in file_refs(result.body.get("artifacts")):
        path = path_of(ref).resolve()
        stage.check(path.exists(), "artifacts that name files which exist", f"{ref} does not exist")
        inside = f"the folder of attempt 1: {attempt.directive['workspace_ref']}"
        stage.check(path.is_relative_to(folder), f"artifacts inside {inside}", f"{ref} is outside")
    check_no_strays(stage)
    output = output_of(attempt.directive)
    is_written = output.is_file() and output.stat().st_size > 0
    stage.check(is_written, f"a file at output_ref: {output}", "there is none, or an empty one")


@case(
    "own-ids",
    checks="Of two directives at once, each callback carries its own attempt's ids and token",
    catches="a token or an id kept in a shared variable, overwritten by the next directive",
    why="A token is good for one attempt alone: with another's the callback is answered 401, and the work is lost.",
    remedy="Keep the ids and the token with the directive that they came with.",
)
def own_ids(stage: Stage) -> None:
    # Long enough that the second comes while the first is at work, on a slow machine too.
    both = [stage.deliver(tenant=f"contract-{name}", work_seconds=1.0) for name in ("one", "two")]
    stage.wait_for(
        lambda: bool(forged(stage)) or all(one.result for one in both),
        "a RESULT for each of two directives",
        lambda: f"{sum(1 for one in both if one.result)} of 2 came",
    )
    found = forged(stage)
    stage.check(not found, "callbacks with the ids and token of their own directive", "; ".join(found[:3]))


@case(
    "unknown-fields",
    checks="Fields that the service does not know are passed over: in the directive, its objects, and the answers; "
    "refs may be objects with `uri`",
    catches="strict parsing, which breaks with the next version of LUCIUS",
    why="Either side passes over fields it does not know: this is how the contract grows.",
    remedy="Read the fields that you need and ignore the rest. Read a ref as a URI, or as an object with uri.",
)
def unknown_fields(stage: Stage) -> None:
    stage.orchestrator.adds_unknown_fields = True
    extra: dict[str, Any] = {"contract_test_unknown": {"nested": [1, None, {"more": "text"}]}}
    plain = stage.directives.first("contract-unknown", 30.0, 0.0, is_slow=False)
    fields = {name: plain[name] for name in plain if name not in ("jobId", "tenant_id")}
    attempt = stage.deliver_made(
        plain
        | extra
        | {
            "callback_urls": fields["callback_urls"] | extra,
            "input_ref": {"uri": fields["input_ref"], **extra},
            "output_ref": {"uri": fields["output_ref"], **extra},
            "previous": {**fields["previous"], **extra},
            "contract_test": fields["contract_test"] | extra,
        }
    )
    check_succeeded(stage, stage.expect_end(attempt))


@case(
    "odd-tenant",
    checks="A tenant with spaces, signs and letters of other scripts: `workspace_ref` is percent-encoded, and is "
    "decoded once",
    catches="a path taken from the URI as it stands, or decoded twice",
    why="Files would lie in a folder that no other service looks into, or the step would fail for some tenants only.",
    remedy="Parse the URI and percent-decode its path, once. Send tenant_id back as it came, in UTF-8.",
)
def odd_tenant(stage: Stage) -> None:
    attempt = stage.deliver(tenant=ODD_TENANT)
    result = stage.expect_end(attempt)
    check_succeeded(stage, result)
    check_no_strays(stage)
    for ref in file_refs(result.body.get("artifacts")):
        exists = path_of(ref).exists()
        stage.check(exists, "artifacts as percent-encoded URIs of files that exist", f"{ref} does not exist")


@case(
    "large-directive",
    checks="A directive of more than 200 KB (a long `previous`) is answered with a RESULT of any status",
    catches="a fixed buffer or a body limit that is too small",
    why="A directive may be as large as the bus allows, 256 KiB by default; silence costs every attempt of the step.",
    remedy="Allow bodies of at least 256 KiB in the answer to a pull.",
)
def large_directive(stage: Stage) -> None:
    bulk = {"text": "lantern " * (LARGE_CHARACTERS // 8)}
    attempt = stage.deliver(previous={**stage.directives.sample.previous, "contract-test-bulk": bulk})
    stage.expect_end(attempt)


@case(
    "bad-input",
    checks="An `input_ref` that leads nowhere gives a RESULT `FAILED` with `failure_class` and `error.code`",
    catches="a service that is silent, dies or reports success when its input is missing",
    why="Silence costs the whole lease, and then every attempt; a false success is worse.",
    remedy="Catch every error of the work and send a RESULT FAILED with a failure_class and error {code, message}.",
)
def bad_input(stage: Stage) -> None:
    attempt = stage.deliver(input_ref=stage.directives.missing.as_uri(), previous={})
    result = stage.expect_end(attempt)
    status = str(result.body.get("status"))
    stage.check(status.startswith("FAILED"), "a RESULT with the status FAILED", f"its status is {status}")
    stage.check(not result.faults, "a RESULT that meets the schema", "; ".join(result.faults))
    error = result.body.get("error")
    has_code = isinstance(error, dict) and bool(error.get("code"))
    stage.check(has_code, "a RESULT FAILED with error.code", f"error is {error!r}")


@case(
    "backlog",
    checks=f"Of {BACKLOG} directives that wait at once, each is acknowledged and gets one RESULT, or the same again",
    catches="directives that are taken and dropped when the service is busy, and ids mixed up under load",
    why="A directive that was acknowledged is not delivered again: what is dropped then hangs until its lease ends.",
    remedy="Pull no more than there are free slots for, and keep what was pulled until its RESULT is answered.",
)
def backlog(stage: Stage) -> None:
    attempts = [stage.deliver(tenant=f"contract-{number % 3}") for number in range(BACKLOG)]
    done = 0
    while done < BACKLOG:
        before = done
        stage.wait_for(
            partial(_have_ended, attempts, before + 1),
            f"{BACKLOG} RESULTs, and never {BACKLOG_SILENCE_SECONDS:g} s without one",
            f"{before} came, then none",
            BACKLOG_SILENCE_SECONDS,
        )
        done = _ended(attempts)
    stage.wait_for(
        lambda: all(stage.calls(one, "ACK") for one in attempts),
        f"{BACKLOG} ACKs",
        lambda: f"{sum(1 for one in attempts if stage.calls(one, 'ACK'))} came",
        within_seconds=2.0,
    )
    stage.quiet(0.5)
    for attempt in attempts:
        check_one_result(stage, attempt)


def _have_ended(attempts: list[Attempt], count: int) -> bool:
    return _ended(attempts) >= count


def _ended(attempts: list[Attempt]) -> int:
    return sum(1 for one in attempts if one.result is not None)


def forged(stage: Stage) -> list[str]:
    """The callbacks of this case with other ids or another token than they should have."""
    heard = stage.calls(None, "ACK", "HEARTBEAT", "RESULT")
    return [f"{call.kind}: {fault}" for call in heard if call.status == 401 for fault in call.faults]


def check_succeeded(stage: Stage, result: Call) -> None:
    body = result.body
    error = f", error {body['error']}" if body.get("error") else ""
    happened = f"its status is {body.get('status')}{error}"
    stage.check(body.get("status") == "SUCCEEDED", "a RESULT with the status SUCCEEDED for the sample", happened)
    stage.check(not result.faults, "a RESULT that meets the schema", "; ".join(result.faults))


def check_no_strays(stage: Stage) -> None:
    strays = stage.strays()
    happened = f"files in no attempt's folder: {', '.join(strays[:3])}"
    stage.check(not strays, "files below the attempt's workspace_ref only", happened)


def check_one_result(stage: Stage, attempt: Attempt) -> None:
    """One RESULT, or the same one again."""
    clocks = ("completed_at", "sent_at", "callback_token")
    results = stage.calls(attempt, "RESULT")
    bodies = [{name: value for name, value in one.body.items() if name not in clocks} for one in results]
    differ = [body for body in bodies if body != bodies[0]]
    stage.check(not differ, "one RESULT, or the same again", f"{len(bodies)} came, and they differ")

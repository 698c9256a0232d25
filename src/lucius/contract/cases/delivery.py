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
    checks="An ACK with the attempt's five ids and its token arrives in time, before the RESULT or together with it",
    catches="a service that acknowledges after the work, or never",
    why="Without an ACK the directive is redelivered after a third of the ack timeout, and the attempt is lost "
    "when the timeout ends.",
    remedy="Send the ACK as soon as the directive is pulled, and start the work when it is answered.",
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
    checks="The sample's RESULT is `SUCCEEDED` and matches the schema; files named by its artifacts exist in the "
    "attempt's folder; `output_ref` is written if the step is the job's last, and not with `--not-last`",
    catches="a RESULT of the wrong shape, artifacts without files, files outside the workspace, a result nobody gets, "
    "or one that is not final",
    why="Later steps read the artifacts' files, the client reads output_ref, and a separate folder keeps the files of "
    "attempts apart.",
    remedy="Write only under workspace_ref, name existing files, and copy the final result to output_ref only when "
    "last_step is true. If the service's step is never the last of its protocol, pass --not-last. If the sample "
    "does not fit the service, give one with --input, --payload or --previous.",
)
def result_good(stage: Stage) -> None:
    attempt = stage.deliver()
    result = stage.expect_end(attempt)
    check_succeeded(stage, result)
    folder = workspace_of(attempt.directive).resolve()
    for ref in file_refs(result.body.get("artifacts")):
        path = path_of(ref).resolve()
        stage.check(path.exists(), "artifacts that name existing files", f"{ref} does not exist")
        inside = f"the folder of attempt 1: {attempt.directive['workspace_ref']}"
        stage.check(path.is_relative_to(folder), f"artifacts inside {inside}", f"{ref} is outside")
    check_no_strays(stage)
    output = output_of(attempt.directive)
    if not attempt.directive["last_step"]:
        expected = f"nothing at output_ref ({output}), as last_step is false"
        stage.check(not output.exists(), expected, "the service has written it")
        return
    is_written = output.is_file() and output.stat().st_size > 0
    stage.check(is_written, f"a file at output_ref: {output}", "there is none, or an empty one")


@case(
    "own-ids",
    checks="With two directives at once, each callback has its own attempt's ids and token",
    catches="a token or an id kept in a shared variable, overwritten by the next directive",
    why="A token is valid for one attempt only: with another's the callback is answered 401, and the work is lost.",
    remedy="Keep the ids and the token with their directive.",
)
def own_ids(stage: Stage) -> None:
    # Long enough that the second arrives while the first is running, even on a slow machine.
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
    checks="Unknown fields are ignored: in the directive, its objects, and the answers; refs may be objects with `uri`",
    catches="strict parsing, which breaks with the next version of LUCIUS",
    why="Either side ignores unknown fields, so that the contract can be extended.",
    remedy="Read the fields that you need and ignore the rest. Read a ref as a URI, or as an object with uri.",
)
def unknown_fields(stage: Stage) -> None:
    stage.orchestrator.adds_unknown_fields = True
    extra: dict[str, Any] = {"contract_test_unknown": {"nested": [1, None, {"more": "text"}]}}
    plain = stage.directives.first("contract-unknown", 30.0, 0.0, is_slow=False)
    fields = {name: plain[name] for name in plain if name not in ("jobId", "tenant_id")}
    attempt = stage.deliver_directive(
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
    checks="A tenant with spaces, symbols and letters of other scripts: `workspace_ref` is percent-encoded, and "
    "decoded once",
    catches="a path taken from the URI without decoding, or decoded twice",
    why="Files would be in a folder that no other service reads, or the step would fail for some tenants only.",
    remedy="Parse the URI and percent-decode its path, once. Send tenant_id back unchanged, in UTF-8.",
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
    checks="An `input_ref` without a file gives a RESULT `FAILED` with `failure_class` and `error.code`",
    catches="a service that is silent, crashes or reports success when its input is missing",
    why="Silence costs the whole lease, and then every attempt; a false success is worse.",
    remedy="Catch every error of the work and send a RESULT FAILED with a failure_class and error {code, message}.",
)
def bad_input(stage: Stage) -> None:
    attempt = stage.deliver(input_ref=stage.directives.missing.as_uri(), previous={})
    result = stage.expect_end(attempt)
    status = str(result.body.get("status"))
    stage.check(status.startswith("FAILED"), "a RESULT with the status FAILED", f"its status is {status}")
    stage.check(not result.faults, "a RESULT that matches the schema", "; ".join(result.faults))
    error = result.body.get("error")
    has_code = isinstance(error, dict) and bool(error.get("code"))
    stage.check(has_code, "a RESULT FAILED with error.code", f"error is {error!r}")


@case(
    "backlog",
    checks=f"Of {BACKLOG} directives waiting at once, each is acknowledged and gets one RESULT, or identical ones",
    catches="directives that are pulled and dropped when the service is busy, and ids mixed up under load",
    why="An acknowledged directive is not redelivered: if it is dropped, it hangs until its lease ends.",
    remedy="Pull only as many as there are free slots, and keep each until its RESULT is answered.",
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
    """The callbacks of this case with wrong ids or a wrong token."""
    callbacks = stage.calls(None, "ACK", "HEARTBEAT", "RESULT")
    return [f"{call.kind}: {fault}" for call in callbacks if call.status == 401 for fault in call.faults]


def check_succeeded(stage: Stage, result: Call) -> None:
    body = result.body
    error = f", error {body['error']}" if body.get("error") else ""
    happened = f"its status is {body.get('status')}{error}"
    stage.check(body.get("status") == "SUCCEEDED", "a RESULT with the status SUCCEEDED for the sample", happened)
    stage.check(not result.faults, "a RESULT that matches the schema", "; ".join(result.faults))


def check_no_strays(stage: Stage) -> None:
    strays = stage.strays()
    happened = f"files outside of attempts' folders: {', '.join(strays[:3])}"
    stage.check(not strays, "files only under the attempt's workspace_ref", happened)


def check_one_result(stage: Stage, attempt: Attempt) -> None:
    """One RESULT, or identical ones."""
    clocks = ("completed_at", "sent_at", "callback_token")
    results = stage.calls(attempt, "RESULT")
    bodies = [{name: value for name, value in one.body.items() if name not in clocks} for one in results]
    differ = [body for body in bodies if body != bodies[0]]
    stage.check(not differ, "one RESULT, or identical ones", f"{len(bodies)} came, and they differ")

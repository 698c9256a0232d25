"""What every page, piece, act, download and stream is held to, by the console's own table of routes. No browser."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator

import httpx
import pytest
from msgspec import Struct
from tests.console import console_addresses as addresses
from tests.console.batch_scenario import Batch
from tests.console.console_server import ACME, ADMIN, ONLY, OPERATOR, READER, Server
from tests.console.test_console_pages import csrf_of, signed_in
from tests.long_form import IS_LONG

from lucius.console.forms import FIELDS_MAX, FORM_BYTES_MAX
from lucius.console.routes import ACTS, PAGES
from lucius.usecases.changes import DEBOUNCE_SECONDS, NAMES_MAX

SPARE_ID = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"
HOSTILE = (
    "<script>document.title='owned'</script>", "x" * 5_000, "\x00", "\u202e\U0001f600", "../../etc/passwd", "-1",
    "99999999999999999999", "1e999", "NaN", "'; DROP TABLE job_states; --", "%00", "=cmd|' /C calc'!A0", "{{7*7}}",
)  # fmt: skip
REFUSED = (403, 404)
ENVELOPE = {
    "request_type": "OCR", "input_ref": "https://documents.example/in.pdf", "payload": {"language": "en"},
    "output_ref": "https://documents.example/out.json", "schema_version": "1",
}  # fmt: skip


def some_of(values: tuple[str, ...], number: int) -> tuple[str, ...]:
    """All of them in the long form; in the short form every third, beginning elsewhere for each number."""
    return values if IS_LONG else values[number % 3 :: 3]


class Things(Struct, frozen=True):
    """Things of a tenant that the key `acme` does not see, with words that give them away."""

    values: dict[str, str]
    words: tuple[str, ...]
    foreign_job: str
    batch: Batch


@pytest.fixture(scope="module")
def things(server: Server) -> Things:
    mark = uuid.uuid4().hex[:8]
    tenant, runbook = f"foreign-{mark}", f"secret-{mark}"
    failed, waiting = server.submit(tenant_id=tenant), server.submit(tenant_id=tenant)
    server.fail(failed, f"message {mark}", f"CODE_{mark.upper()}")
    batch = Batch(server, runbook, [f"member-{mark}"], {"first": ["step"]})
    values = addresses.make_values(server, failed, batch, tenant, f"reason {mark}")
    return Things(values, (tenant, failed, waiting, mark, mark.upper()), waiting, batch)


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[httpx.Client]:
    with signed_in(server, ADMIN) as client:
        yield client


def test_nothing_is_shown_or_done_without_a_session(server: Server, things: Things) -> None:
    reading = [addresses.pages(things.values), addresses.pieces(things.values), addresses.downloads(things.values)]
    with httpx.Client(base_url=server.url) as client:
        for path in [address for table in reading for address in table.values()] + ["/stream?names=jobs"]:
            answer = client.get(f"/console{path}")
            assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/console/sign-in"), path
            answer = client.get(f"/console{path}", headers={"HX-Request": "true"})
            assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/console/sign-in"), path
        for path in addresses.acts(things.values).values():
            assert client.post(f"/console{path}", data={"reason": "x"}).status_code == 401, path


def test_everything_is_shown_to_an_admin_and_keeps_to_the_policy(admin: httpx.Client, things: Things) -> None:
    """Also shows that the other tests ask for what exists."""
    reading = [addresses.pages(things.values), addresses.pieces(things.values), addresses.downloads(things.values)]
    seen = ""
    for path in [address for table in reading for address in table.values()]:
        answer = admin.get(f"/console{path}")
        assert answer.status_code in (200, 303), (path, answer.text[:500])
        assert answer.headers["content-security-policy"].startswith("default-src 'self'"), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert "no-store" in answer.headers["cache-control"], path
        seen += answer.text
    for word in things.words:
        assert word in seen, f"{word} is nowhere, so nobody could be seen to see it"


def test_a_tenant_sees_nothing_of_others_on_any_page_piece_or_download(server: Server, things: Things) -> None:
    reading = [addresses.pages(things.values), addresses.pieces(things.values), addresses.downloads(things.values)]
    given = {word for path in things.values.values() for word in [path]}
    with signed_in(server, ACME) as client:
        for declared, path in [item for table in reading for item in table.items()]:
            answer = client.get(f"/console{path}")
            if answer.status_code not in REFUSED:
                assert answer.status_code in (200, 303), (path, answer.status_code)
                asked = {word for word in given if word in path}
                for word in set(things.words) - asked:
                    assert word not in answer.text, (declared, word)
            else:
                shown = answer.text.replace(path, "")
                for word in given:
                    shown = shown.replace(word, "")  # It says what was asked for.
                assert things.words[3] not in shown, declared


def test_a_tenant_can_do_nothing_to_others(server: Server, things: Things) -> None:
    before = server.job(things.values["job_id"]), things.batch.shown["status"]
    with signed_in(server, ACME) as client:
        csrf = csrf_of(client.get("/console/jobs").text)
        envelope = json.dumps({**ENVELOPE, "tenant_id": things.words[0]})
        form = {"csrf": csrf, "reason": "x", "envelope": envelope, "members": "x"}
        for declared, path in addresses.acts(things.values).items():
            if path == declared:
                continue  # It names no thing of anybody.
            answer = client.post(f"/console{path}", data=form)
            assert answer.status_code in REFUSED, (declared, answer.status_code)
        form = {"csrf": csrf, "reason": "x", "action": "cancel", "tenant_id": things.words[0]}
        answer = client.post("/console/operations", data=form)
        assert answer.status_code in REFUSED
    assert (server.job(things.values["job_id"]), things.batch.shown["status"]) == before


def test_every_act_needs_its_role_the_token_and_our_own_site(server: Server, things: Things) -> None:
    form = {"reason": "x", "action": "cancel", "name": "x"}
    paths = addresses.acts(things.values)
    with signed_in(server, READER) as reader, signed_in(server, ADMIN) as client:
        csrf = csrf_of(reader.get("/console/jobs").text)
        for act in ACTS:
            if act.role != "read":
                answer = reader.post(f"/console{paths[act.path]}", data={"csrf": csrf, **form})
                assert (answer.status_code, "needs the role" in answer.text) == (403, True), act.path
        own = csrf_of(client.get("/console/jobs").text)
        for declared, path in [*paths.items(), ("/sign-out", "/sign-out")]:
            for data in (form, {**form, "csrf": ""}, {**form, "csrf": csrf}, {**form, "csrf": "\U0001f600"}):
                answer = client.post(f"/console{path}", data=data)
                assert (answer.status_code, "another session" in answer.text) == (403, True), declared
            elsewhere = {"Sec-Fetch-Site": "cross-site"}
            answer = client.post(f"/console{path}", data={**form, "csrf": own}, headers=elsewhere)
            assert (answer.status_code, "another site" in answer.text) == (403, True), declared
            assert client.get(f"/console{path}").status_code in (200, 303, 404, 405), declared
        pages = addresses.pages(things.values)
        for page in PAGES:
            if page.role != "read":
                assert reader.get(f"/console{pages[page.path]}").status_code == 403, page.path
    assert things.batch.shown["status"] != "cancelled"


@pytest.mark.parametrize("role", ONLY)
def test_every_page_and_act_is_for_its_role_and_no_other(server: Server, things: Things, role: str) -> None:
    """On things that do not exist: whoever has the role hears that, whoever lacks it hears so and nothing else."""
    gone = {**things.values, "job_id": SPARE_ID, "operation_id": SPARE_ID, "batch_id": "999999", "name": "nothing"}
    paths, pages = addresses.acts(gone), addresses.pages(things.values)
    with signed_in(server, ONLY[role]) as client:
        csrf = csrf_of(client.get("/console/jobs").text)
        for act in ACTS:
            answer = client.post(f"/console{paths[act.path]}", data={"csrf": csrf, "reason": "x", "action": "nothing"})
            is_refused = answer.status_code == 403 and "needs the role" in answer.text
            assert is_refused is not may(role, act.role), (act.path, answer.status_code)
        for page in PAGES:
            status = client.get(f"/console{pages[page.path]}").status_code
            assert (status == 403) is not may(role, page.role), (page.path, status)


def may(role: str, needed: str) -> bool:
    return needed in ("read", role) or role == "admin"


def test_bad_forms_are_refused_by_every_act(server: Server, things: Things) -> None:
    with signed_in(server, OPERATOR) as client:
        csrf = csrf_of(client.get("/console/jobs").text)
        for path in addresses.acts(things.values).values():
            for status, sent in (
                (415, {"content": b"{}", "headers": {"Content-Type": "application/json"}}),
                (413, {"data": {"csrf": csrf, "reason": "x" * FORM_BYTES_MAX}}),
                (422, {"data": {"csrf": csrf} | {f"field_{number}": "x" for number in range(FIELDS_MAX)}}),
                (422, {"content": b"csrf=\xff\xfe", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
            ):
                answer = client.post(f"/console{path}", **sent)  # type: ignore[arg-type]
                assert answer.status_code == status, (path, answer.text[:300])
                assert answer.headers["content-type"].startswith("text/html")


def test_hostile_fields_and_things_that_are_gone_are_answered_with_a_page(server: Server, things: Things) -> None:
    """Every act, with every field as hostile as can be, on things that do not exist and on one that has ended."""
    ended = server.submit(tenant_id="acme")
    server.client.post(f"/v1/jobs/{ended}:cancel", json={})
    gone = {**things.values, "job_id": SPARE_ID, "operation_id": SPARE_ID, "batch_id": "999999", "member_id": "999999"}
    fields = [name for name in addresses.fields() if name != "csrf"]
    assert {"members", "canary", "envelope"} <= set(fields)
    with signed_in(server, OPERATOR) as client:
        csrf = csrf_of(client.get("/console/jobs").text)
        for values in (gone, {**gone, "job_id": ended}, {**gone, "job_id": "%00", "batch_id": "-1"}):
            for number, (declared, path) in enumerate(addresses.acts(values).items()):
                for value in some_of(HOSTILE, number):
                    form = dict.fromkeys(fields, value) | {"csrf": csrf, "reason": "hostile"}
                    answer = client.post(f"/console{path}", data=form)
                    assert answer.status_code == 303 or 400 <= answer.status_code < 500, (declared, value, answer.text)
                    assert "<script>document" not in answer.text, declared
                    if answer.status_code == 303:
                        assert answer.headers["location"].startswith("/console/"), declared


def test_hostile_queries_are_answered_with_a_page(admin: httpx.Client, things: Things) -> None:
    named = "cursor", "piece", "notice", "status", "tenant_id", "outcome", "format", "created_from", "payload", "since"
    reading = addresses.pages(things.values) | addresses.downloads(things.values)
    for place, (declared, path) in enumerate(reading.items()):
        for number, value in enumerate(some_of(HOSTILE, place), place):
            for name in (named[number % len(named)], named[(number + 3) % len(named)], "nope"):
                query = dict(httpx.QueryParams(path.partition("?")[2])) | {name: value}
                answer = admin.get(f"/console{path.partition('?')[0]}", params=query)
                assert answer.status_code < 500, (declared, name, value, answer.text)
                assert "<script>document" not in answer.text, (declared, name)
        for odd in ("%00", "%ff%fe", "a=%ff", "&&&=&=", "a" * 9_000):
            answer = admin.get(f"/console{path.partition('?')[0]}?{odd}")
            assert answer.status_code < 500, (declared, odd)


def test_no_stream_tells_a_tenant_of_others(server: Server, admin: httpx.Client, things: Things) -> None:
    """Every name that any page follows."""
    found = {
        name
        for path in addresses.pages({**things.values, "job_id": things.foreign_job}).values()
        for names in re.findall(r'data-follows="([^"]*)"', admin.get(f"/console{path}").text)
        for name in names.split()
    }
    assert {"jobs", f"job:{things.foreign_job}", "operations", "batches", f"batch:{things.batch.id}"} <= found
    assert len(found) <= NAMES_MAX
    address = f"/console/stream?names={','.join(sorted(found))}"
    with signed_in(server, ACME) as client, client.stream("GET", address) as own, admin.stream("GET", address) as all_:
        lines, told = own.iter_lines(), set()
        assert (next(lines), next(lines), next(lines)) == ("retry: 1000", ": connected", "")
        server.client.post(f"/v1/jobs/{things.foreign_job}:pause", json={})
        body = {"action": "resume", "filter": {"tenant_id": things.words[0]}, "reason": "for the stream"}
        server.client.post("/v1/operations", json=body)
        things.batch.act("advance")
        wanted = {"jobs", f"job:{things.foreign_job}", "operations", "batches", f"batch:{things.batch.id}"}
        for line in all_.iter_lines():
            told |= set(line.removeprefix("data:").split()) if line.startswith("data:") else set()
            if wanted <= told:
                break
        time.sleep(3 * DEBOUNCE_SECONDS)  # What is told of it would come by itself.
        server.submit(tenant_id="acme")
        assert next(line for line in lines if line.startswith("data:")) == "data: jobs"

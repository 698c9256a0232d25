"""Signing in with OpenID Connect: a real issuer on `localhost`, the console on `127.0.0.1`, so on another site."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import Server
from tests.console.openid_issuer import Issuer

CLIENT, SECRET = "lucius console", "s3cret:with/odd characters"
SESSION, ATTEMPT = "lucius_console", "lucius_console_sign_in"
DEADLINE_SECONDS = 10.0


@pytest.fixture(scope="module")
def issuer(pytestconfig: pytest.Config) -> Iterator[Issuer]:
    assert pytestconfig.cache is not None
    issuer = Issuer(Path(pytestconfig.cache.mkdir("npm")))
    yield issuer
    issuer.stop()


@pytest.fixture(scope="module")
def console(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(
        tmp_path_factory.mktemp("openid"),
        LUCIUS_OIDC_ISSUER=issuer.url,
        LUCIUS_OIDC_CLIENT_ID=CLIENT,
        LUCIUS_OIDC_CLIENT_SECRET=SECRET,
    )
    assert server.url.startswith("http://127.0.0.1:")
    client = {
        "client_id": CLIENT,
        "client_secret": SECRET,
        "redirect_uris": [f"{server.url}/console/sign-in/openid/return"],
        "post_logout_redirect_uris": [f"{server.url}/console/sign-in"],
    }
    issuer.serve([client])
    yield server
    server.stop()
    assert SECRET not in (server.folder / "log").read_text()


@pytest.fixture
def visitor() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        yield client


def way_back(client: httpx.Client, console: Server, login: str, following: str = "/jobs") -> str:
    """The address that the issuer sends the browser back to, not yet opened."""
    answer = client.get(f"{console.url}/console/sign-in/openid", params={"next": following})
    for _ in range(10):
        assert answer.status_code in (200, 302, 303), answer.text
        if answer.status_code == 200:
            assert "Who are you?" in answer.text
            target = f"{answer.url}?{urlencode({'login': login})}"
        else:
            target = str(answer.url.join(answer.headers["location"]))
        if target.startswith(console.url):
            return target
        answer = client.get(target)
    raise AssertionError("the issuer goes round in circles")


def in_browser(open_tab: OpenTab, console: Server, issuer: Issuer, login: str, path: str) -> Tab:
    tab = open_tab(url=console.url)
    tab.allowed = (console.url, issuer.url)
    tab.go(path)
    tab.page.click("text=Sign in with localhost")
    tab.page.click(f"a:text-is('{login}')")
    tab.page.wait_for_selector("nav")
    return tab


def test_person_signs_in_acts_and_signs_out(console: Server, issuer: Issuer, open_tab: OpenTab) -> None:
    job_id = console.submit()
    tab = open_tab(url=console.url)
    tab.go("/sign-in")
    assert tab.faults_by_look() == []
    tab.page.context.close()
    tab = in_browser(open_tab, console, issuer, "ann", f"/jobs/{job_id}?x=1")
    assert tab.page.url == f"{console.url}/console/jobs/{job_id}?x=1"
    assert "ann@example.org" in tab.text(".who")
    cookies = {one["name"]: one for one in tab.page.context.cookies(f"{console.url}/console/sign-in/openid")}
    assert ATTEMPT not in cookies
    assert (cookies[SESSION]["sameSite"], cookies[SESSION]["httpOnly"]) == ("Strict", True)
    assert 0 < cookies[SESSION]["expires"] - time.time() < 3_600 + 31, "ends with the ID token, not after 12 hours"
    tab.until_live()
    tab.page.click("summary:has-text('Pause …')")
    tab.page.fill("details[open] input[name=reason]", "to look at it")
    tab.page.click("details[open] button:has-text('Pause this job')")
    tab.page.wait_for_selector("text=The job is paused.")
    events = console.client.get(f"/v1/jobs/{job_id}/events").json()["events"]
    assert [event["by"] for event in events if event["type"] == "PAUSED"] == ["oidc:ann"]
    tab.page.click("text=Sign out")
    tab.page.wait_for_selector("text=Your session on this console has ended")
    assert tab.faults_by_look() == []
    tab.go("/")
    assert "/sign-in" in tab.page.url
    tab.go("/signed-out")
    tab.page.click("text=sign out there too")
    tab.page.click("text=Yes, sign me out")
    tab.page.wait_for_url(f"{console.url}/console/sign-in*")


def test_landing_page_is_readable_in_every_look(console: Server, visitor: httpx.Client, open_tab: OpenTab) -> None:
    """As it is, but for leading on by itself."""
    answer = visitor.get(way_back(visitor, console, "ann"))
    assert 'http-equiv="refresh"' in answer.text
    kept = {name: answer.headers[name] for name in ("content-type", "content-security-policy")}
    body = answer.text.replace('http-equiv="refresh"', "")
    tab = open_tab(url=console.url)
    tab.page.route("**/console/landing", lambda route: route.fulfill(body=body, headers=kept))
    tab.go("/landing")
    assert "Signed in" in tab.text("h1")
    assert tab.faults_by_look() == []


def test_claims_limit_what_a_person_sees(console: Server, issuer: Issuer, open_tab: OpenTab) -> None:
    own, foreign = console.submit(tenant_id="acme"), console.submit(tenant_id="globex")
    tab = in_browser(open_tab, console, issuer, "reader", "/jobs")
    assert "<i>reader</i>" in tab.text(".who")
    assert own in tab.text()
    assert foreign not in tab.text()
    tab.go(f"/jobs/{own}")
    assert tab.page.locator("summary:has-text('Cancel')").count() == 0
    tab.go(f"/jobs/{foreign}")
    assert "Job not found" in tab.text("h1")


def test_attempt_is_protected_and_asks_for_no_more_than_it_needs(console: Server, issuer: Issuer) -> None:
    answer = httpx.get(f"{console.url}/console/sign-in/openid", params={"next": "/jobs"})
    assert answer.status_code == 303
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query.keys() == {
        "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
        "code_challenge_method",
    }  # fmt: skip
    assert (query["response_type"], query["code_challenge_method"]) == (["code"], ["S256"])
    assert query["redirect_uri"] == [f"{console.url}/console/sign-in/openid/return"]
    cookie = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=lax", "Path=/console/sign-in/openid", "Max-Age=600"):
        assert part in cookie
    again = httpx.get(f"{console.url}/console/sign-in/openid")
    assert parse_qs(urlsplit(again.headers["location"]).query)["state"] != query["state"]


@pytest.mark.parametrize("following", ["//evil.example/", "https://evil.example/", "/\\evil.example", "/sign-in", "x"])
def test_signing_in_never_leads_elsewhere(
    console: Server, issuer: Issuer, visitor: httpx.Client, following: str
) -> None:
    answer = visitor.get(way_back(visitor, console, "ann", following))
    assert answer.status_code == 200
    assert 'content="0; url=/console/"' in answer.text


def refused(client: httpx.Client, address: str, status: int, words: str) -> None:
    answer = client.get(address)
    assert answer.status_code == status, answer.text
    shown = re.search(r'role="alert">(.*?)</p>', answer.text)
    assert shown is not None
    assert words in shown[1]
    assert SESSION not in [one.name for one in client.cookies.jar]
    assert "no-store" in answer.headers["cache-control"]


@pytest.mark.parametrize("change", ["state", "no state", "cookie", "no cookie", "two states", "other iss", "no code"])
def test_way_back_that_is_not_of_this_attempt_is_refused(
    console: Server, issuer: Issuer, visitor: httpx.Client, change: str
) -> None:
    parts = urlsplit(way_back(visitor, console, "ann"))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert query["iss"] == issuer.url
    words = "another attempt"
    if change == "state":
        query["state"] = "x" + query["state"][1:]
    elif change == "no state":
        del query["state"]
    elif change == "other iss":
        query["iss"], words = "https://evil.example", "not from the issuer"
    elif change == "no code":
        del query["code"]
        words = "contains no code"
    elif change == "two states":
        words = "Sign in again"
    else:
        words = "Sign in again"
        visitor.cookies.delete(ATTEMPT)
        if change == "cookie":
            visitor.cookies.set(ATTEMPT, "a.b.c", domain="127.0.0.1")
    repeated = f"&state={query['state']}" if change == "two states" else ""
    refused(visitor, f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(query)}{repeated}", 401, words)


def test_code_and_attempt_are_good_for_one_use(console: Server, issuer: Issuer, visitor: httpx.Client) -> None:
    address = way_back(visitor, console, "ann")
    attempt = visitor.cookies[ATTEMPT]
    assert visitor.get(address).status_code == 200
    assert ATTEMPT not in visitor.cookies
    assert SESSION in visitor.cookies
    visitor.cookies.delete(SESSION)
    refused(visitor, address, 401, "was finished before")
    visitor.cookies.set(ATTEMPT, attempt, domain="127.0.0.1")
    refused(visitor, address, 401, "invalid_grant")


def test_code_of_somebody_else_is_refused(console: Server, issuer: Issuer, visitor: httpx.Client) -> None:
    """An attacker's code in the victim's browser: PKCE binds a code to the browser that asked for it."""
    with httpx.Client(timeout=DEADLINE_SECONDS) as attacker:
        stolen = parse_qs(urlsplit(way_back(attacker, console, "ann")).query)["code"][0]
    parts = urlsplit(way_back(visitor, console, "reader"))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | {"code": stolen}
    refused(visitor, f"{console.url}{parts.path}?{urlencode(query)}", 401, "invalid_grant")


FORGED = {
    "nonce": ({"nonce": "another"}, 401, "another attempt"),
    "no nonce": ({"nonce": None}, 401, "another attempt"),
    "expired": ({"exp": 1_700_000_000}, 401, "has expired"),
    "not yet": ({"iat": 4_000_000_000, "nbf": 4_000_000_000}, 401, "not valid yet"),
    "audience": ({"aud": "another"}, 401, "another audience"),
    "two audiences": ({"aud": [CLIENT, "another"], "azp": "another"}, 401, "another audience"),
    "issuer": ({"iss": "https://evil.example"}, 401, "not trusted here"),
    "no subject": ({"sub": None}, 401, "who you are"),
    "no roles": ({"roles": []}, 403, "without a role"),
    "odd roles": ({"roles": {"read": True}}, 403, "without a role"),
}


@pytest.mark.parametrize("case", FORGED)
def test_id_token_that_is_not_for_this_attempt_is_refused(
    console: Server, issuer: Issuer, visitor: httpx.Client, case: str
) -> None:
    claims, status, words = FORGED[case]
    address = way_back(visitor, console, "ann")
    issuer.tell(forge=claims)
    try:
        refused(visitor, address, status, words)
    finally:
        issuer.tell(forge=None)


@pytest.mark.parametrize(
    ("login", "status", "words"),
    [
        ("stranger", 403, "stranger@example.org, but without a role in LUCIUS: the claim roles"),
        ("homeless", 403, "homeless@example.org, but without a tenant: the claim tenants"),
        ("", 401, "did not sign you in: access_denied"),
    ],
)
def test_who_may_not_in_is_told_why(
    console: Server, issuer: Issuer, visitor: httpx.Client, login: str, status: int, words: str
) -> None:
    refused(visitor, way_back(visitor, console, login), status, words)


def test_session_ends_with_the_token_and_not_later(console: Server, issuer: Issuer, visitor: httpx.Client) -> None:
    address = way_back(visitor, console, "ann")
    issuer.tell(forge={"exp": int(time.time()) - 27})  # Within the tolerance for clocks: about three seconds are left.
    try:
        answer = visitor.get(address)
    finally:
        issuer.tell(forge=None)
    assert answer.status_code == 200
    session = visitor.cookies[SESSION]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while httpx.get(f"{console.url}/console/", cookies={SESSION: session}).status_code == 200:
        assert time.monotonic() < deadline, "the session goes on without its token"
        time.sleep(0.1)

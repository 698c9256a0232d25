"""Inputs from the web: over real TLS, within limits, and never from inside the network."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.platform.blob_service import directive

from lucius.platform import NonRetryable, PlatformSettings, RateLimited, Retryable, Workspace, WorkStopped
from lucius.platform import https_fetch as module
from lucius.platform.https_inputs import HttpsInputs
from lucius.platform.remote_files import RemoteFiles, open_remote_files
from lucius.testing.servicebus.certificates import make_certificates

HOST, OTHER = "input.example", "other.example"
Answer = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """A server that answers with what a test says, and remembers what it was asked."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        web = self
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                web.answers[self.path.partition("?")[0]](self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def url(self, path: str, host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(body: bytes = b"", status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Web, Path]]:
    certificates = make_certificates(HOST, tmp_path_factory.mktemp("tls"))
    web = Web(certificates.context)
    yield web, certificates.ca_file
    web.close()


@pytest.fixture
def names() -> dict[str, list[str]]:
    return {HOST: ["127.0.0.1"], OTHER: ["127.0.0.1"]}


@pytest.fixture
def web(served: tuple[Web, Path], names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> Web:
    web, ca_file = served
    web.answers.clear()
    web.asked.clear()
    trust = ssl.create_default_context(cafile=str(ca_file))
    monkeypatch.setattr(module, "_system_trust", lambda: trust)
    monkeypatch.setattr(module, "resolve", lambda host, port: names.get(host, []))
    return web


def read(ref: Any, bytes_max: int = 100, **options: Any) -> bytes:
    https = HttpsInputs(**{"private_allowed": True, **options})
    workspace = Workspace(directive("file:///work", input_ref=ref), remote=RemoteFiles(https=https))
    return workspace.read_input(bytes_max)


def test_an_input_is_read_as_it_is_and_nothing_is_sent_along(web: Web) -> None:
    web.answers["/a%20b"] = reply(b"content")
    assert read({"uri": web.url("/a%20b?version=3#page=2")}) == b"content"
    ((path, headers),) = web.asked
    assert path == "/a%20b?version=3"
    assert headers["host"] == f"{HOST}:{web.port}"
    assert headers["accept-encoding"] == "identity"
    assert not headers.keys() & {"authorization", "cookie", "proxy-authorization"}


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "a loopback"),
        ("10.1.2.3", "a private"),
        ("169.254.169.254", "a link-local"),
        ("168.63.129.16", "a cloud's metadata"),
        ("::ffff:127.0.0.1", "an IPv4-mapped"),
        ("fd00:ec2::254", "a cloud's metadata"),
    ],
)
def test_an_address_inside_the_network_is_not_called(
    web: Web, names: dict[str, list[str]], address: str, kind: str
) -> None:
    names[HOST], names[address] = ["93.184.215.14", address], [address]
    with pytest.raises(NonRetryable, match=rf"PATH_FORBIDDEN.*{HOST} resolves to {kind} address"):
        read(web.url("/secret"), private_allowed=False)
    with pytest.raises(NonRetryable, match="PATH_FORBIDDEN"):
        read(f"https://{'[' + address + ']' if ':' in address else address}/", private_allowed=False)
    assert web.asked == []


def test_redirects_are_followed_within_the_rules(web: Web, names: dict[str, list[str]]) -> None:
    web.answers["/1"] = reply(status=302, Location="/2")
    web.answers["/2"] = reply(status=307, Location=web.url("/3"))
    web.answers["/3"] = reply(b"found")
    assert read(web.url("/1")) == b"found"
    names["inside.example"] = ["169.254.169.254"]
    web.answers["/in"] = reply(status=302, Location="https://inside.example/latest/meta-data")
    with pytest.raises(NonRetryable, match=r"PATH_FORBIDDEN.*inside\.example resolves to a link-local"):
        read(web.url("/in"))
    web.answers["/plain"] = reply(status=302, Location=f"http://{HOST}:{web.port}/3")
    with pytest.raises(NonRetryable, match=r"REF_INVALID.*must be https"):
        read(web.url("/plain"))
    web.answers["/file"] = reply(status=302, Location="file:///etc/passwd")
    with pytest.raises(NonRetryable, match=r"REF_INVALID.*must be https"):
        read(web.url("/file"))
    web.answers["/circle"] = reply(status=302, Location="/circle")
    with pytest.raises(NonRetryable, match=r"INPUT_REFUSED.*more than 5 times"):
        read(web.url("/circle"))


def test_hosts_that_are_not_listed_are_refused_also_behind_a_redirect(web: Web) -> None:
    web.answers["/x"] = reply(b"x")
    web.answers["/to"] = reply(status=302, Location=web.url("/x", OTHER))
    assert read(web.url("/x"), hosts=("*.example",)) == b"x"
    assert read(web.url("/x"), hosts=(HOST,)) == b"x"
    for url in (web.url("/x", OTHER), web.url("/to")):
        with pytest.raises(NonRetryable, match=rf"PATH_FORBIDDEN.*{OTHER}, which LUCIUS_PLATFORM_HTTPS_HOSTS"):
            read(url, hosts=(HOST,))


def test_a_certificate_of_another_name_is_no_certificate(web: Web) -> None:
    web.answers["/x"] = reply(b"x")
    with pytest.raises(Retryable, match=rf"INPUT_UNAVAILABLE.*{OTHER}: its certificate is not valid"):
        read(web.url("/x", OTHER))


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (404, NonRetryable, "INPUT_NOT_FOUND"),
        (410, NonRetryable, "INPUT_NOT_FOUND"),
        (401, NonRetryable, "INPUT_FORBIDDEN"),
        (403, NonRetryable, "INPUT_FORBIDDEN"),
        (204, NonRetryable, "INPUT_REFUSED"),
        (400, NonRetryable, "INPUT_REFUSED"),
        (304, NonRetryable, "INPUT_REFUSED"),
        (429, RateLimited, "INPUT_RATE_LIMITED"),
        (408, Retryable, "INPUT_UNAVAILABLE"),
        (500, Retryable, "INPUT_UNAVAILABLE"),
        (503, Retryable, "INPUT_UNAVAILABLE"),
    ],
)
def test_each_status_becomes_a_class_of_failure(web: Web, status: int, kind: type[Exception], code: str) -> None:
    web.answers["/x"] = reply(status=status, Retry_After="7")
    with pytest.raises(kind) as failed:
        read(web.url("/x?name=value-of-the-query"))
    assert failed.value.code == code
    assert f"{HOST} answers {status}" in str(failed.value)
    assert "value-of-the-query" not in str(failed.value)
    if kind is RateLimited:
        assert failed.value.retry_after_seconds == 7


def test_what_is_too_large_is_not_read_to_its_end(web: Web) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            ended.set()

    ended = threading.Event()
    web.answers["/endless"] = endless
    with pytest.raises(NonRetryable, match=r"INPUT_TOO_LARGE.*more than 1000000 bytes"):
        read(web.url("/endless"), 1_000_000)
    assert ended.wait(10)
    web.answers["/told"] = reply(b"x" * 11)
    with pytest.raises(NonRetryable, match="INPUT_TOO_LARGE"):
        read(web.url("/told"), 10)
    assert read(web.url("/told"), 11) == b"x" * 11


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: "], ids=["body", "headers"])
def test_what_drips_is_given_up_at_the_deadline(web: Web, sent: bytes) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(sent)
        try:
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:
            return

    web.answers["/drip"] = drip
    started = time.monotonic()
    with pytest.raises(Retryable, match=r"INPUT_UNAVAILABLE.*within 0\.5 s"):
        read(web.url("/drip"), 10**9, seconds_max=0.5)
    assert time.monotonic() - started < 5


def test_what_says_nothing_is_given_up_at_the_deadline(web: Web) -> None:
    released = threading.Event()
    web.answers["/silent"] = lambda handler: released.wait(20) and None
    with pytest.raises(Retryable, match="INPUT_UNAVAILABLE"):
        read(web.url("/silent"), seconds_max=0.3)
    released.set()


def test_what_breaks_off_may_be_whole_next_time(web: Web) -> None:
    web.answers["/half"] = reply(b"half", Content_Length="1000")
    with pytest.raises(Retryable, match=r"INPUT_UNAVAILABLE.*broke off"):
        read(web.url("/half"), 10_000)


def test_what_is_compressed_unasked_is_refused(web: Web) -> None:
    web.answers["/bomb"] = reply(b"\x1f\x8b", Content_Encoding="gzip")
    with pytest.raises(NonRetryable, match=r"INPUT_REFUSED.*compressed"):
        read(web.url("/bomb"))


def test_a_name_that_does_not_resolve_may_resolve_later(web: Web) -> None:
    with pytest.raises(Retryable, match=r"INPUT_UNAVAILABLE.*unknown\.example does not resolve"):
        read("https://unknown.example/x")


def test_a_name_server_that_hangs_is_not_waited_for(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(module, "resolve", lambda host, port: [str(released.wait(20))])
    with pytest.raises(Retryable, match=r"INPUT_UNAVAILABLE.*within 0\.2 s"):
        read("https://slow.example/x", seconds_max=0.2)
    released.set()


@pytest.mark.parametrize("ref", ["https://", "https://user:hidden@input.example/x", "https://[half/x"])
def test_an_address_that_cannot_be_called_is_refused_without_its_secret(web: Web, ref: str) -> None:
    with pytest.raises(NonRetryable, match="REF_INVALID") as refused:
        read(ref)
    assert "hidden" not in str(refused.value)


def test_work_that_must_stop_stops_reading(web: Web) -> None:
    def stop() -> None:
        raise WorkStopped("STALE")

    web.answers["/x"] = reply(b"x")
    with pytest.raises(WorkStopped):
        HttpsInputs(private_allowed=True).open(web.url("/x"), "input_ref", 9, stop)


def test_nothing_is_written_to_the_web(tmp_path: Path) -> None:
    message = directive(tmp_path.as_uri(), output_ref="https://input.example/x")
    with pytest.raises(NonRetryable, match=r"REF_SCHEME_UNSUPPORTED.*writes file:// and blob://"):
        Workspace(message).check_output()


def test_settings_say_what_is_read() -> None:
    settings = PlatformSettings(https_hosts="A.example., *.b.example", https_seconds_max=7.0)
    with open_remote_files(settings) as remote:
        assert remote.https == HttpsInputs(7.0, ("a.example", "*.b.example"), private_allowed=False)

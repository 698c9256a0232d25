"""`file` refs against a real `lucius up`: what a caller with nothing but `submit` on one tenant can reach."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import LiveServer

from lucius.platform.file_roots import SAMPLES

SUBMIT_KEY = "lk_of_a_caller_that_may_only_submit_0123456789"
SECRET = "what only its owner may read\n"
INPUT = "The lanterns are lit at dusk. Nobody sleeps.\n"


class Site:
    """A server with three configured roots, and files of others that a caller would like to have."""

    def __init__(self, folder: Path, serve: Callable[..., LiveServer]) -> None:
        self.tenants_root, self.shared_root, self.archive = (folder / name for name in ("tenants", "shared", "archive"))
        for root in (self.tenants_root, self.shared_root, self.archive):
            root.mkdir()
        keys = folder / "keys.yaml"
        digest = hashlib.sha256(SUBMIT_KEY.encode()).hexdigest()
        keys.write_text(json.dumps([{"name": "caller", "sha256": digest, "tenants": ["acme"], "roles": ["submit"]}]))
        roots = f"{self.tenants_root}, shared:{self.shared_root}, readonly:shared:{self.archive}"
        self.server = serve(LUCIUS_API_KEYS_FILE=str(keys), LUCIUS_PLATFORM_FILE_ROOTS=roots)
        self.data = self.server.data.resolve()
        self.own = self.data / "files" / "acme"
        self.others = self.data / "files" / "globex" / "out.txt"
        self.api_key = self.data / "api-key"
        self.outside = folder / "outside.txt"
        for path in (self.others, self.api_key, self.outside):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SECRET)
        for folder_ in (self.own, self.tenants_root / "acme", self.shared_root, self.archive):
            folder_.mkdir(parents=True, exist_ok=True)
            (folder_ / "in.txt").write_text(INPUT)

    def command(self, **refs: str) -> dict[str, Any]:
        known = {"input_ref": (self.own / "in.txt").as_uri(), "output_ref": (self.own / "out.txt").as_uri()}
        rest = {"tenant_id": "acme", "request_type": "OCR", "payload": {}, "schema_version": "1"}
        return {**rest, **known, **refs}

    def submit(self, **refs: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {SUBMIT_KEY}"}
        return httpx.post(f"{self.server.url}/v1/commands", json=self.command(**refs), headers=headers, timeout=60)

    def ended(self, **refs: str) -> dict[str, Any]:
        """The job that the command became, once it is over."""
        answer = self.submit(**refs)
        assert answer.status_code == 202, answer.text
        with self.server.client() as client:
            job = client.get(f"/v1/jobs/{answer.json()['jobId']}", params={"wait_seconds": 60}).json()
        return dict(job)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, serve: Any) -> Site:
    return Site(tmp_path_factory.mktemp("site"), serve)


FORBIDDEN_TO_WRITE: list[Callable[[Site], str]] = [
    lambda site: site.api_key.as_uri(),
    lambda site: f"{site.data.as_uri()}/%61pi-key",
    lambda site: f"{site.data.as_uri()}/files/acme%2f..%2f..%2fapi-key",
    lambda site: f"{site.own.as_uri()}/../../api-key",
    lambda site: f"{site.own.as_uri()}/%2e%2e/%2E%2E/api-key",
    lambda site: f"file:///{site.api_key}",
    lambda site: site.others.as_uri(),
    lambda site: (site.data / "files" / "acme2" / "out.txt").as_uri(),
    lambda site: (site.data / "files").as_uri(),
    lambda site: (site.data / "lucius.db").as_uri(),
    lambda site: (site.data / "services" / "ocr" / "attempts.db").as_uri(),
    lambda site: (site.data / "workspace" / "acme" / "job" / "OCR" / "1" / "ocr" / "output.txt").as_uri(),
    lambda site: (site.tenants_root / "globex" / "out.txt").as_uri(),
    lambda site: (site.archive / "out.txt").as_uri(),
    lambda site: (SAMPLES / "out.txt").as_uri(),
    lambda site: "file:///etc/hostname/out.txt",
]
FORBIDDEN_TO_READ: list[Callable[[Site], str]] = [
    lambda site: "file:///etc/passwd",
    lambda site: "file:///%65tc/passwd",
    lambda site: site.api_key.as_uri(),
    lambda site: site.others.as_uri(),
    lambda site: (site.data / "lucius.db").as_uri(),
    lambda site: (site.data / "workspace" / "globex" / "job" / "OCR" / "1" / "ocr" / "output.txt").as_uri(),
    lambda site: (site.tenants_root / "globex" / "in.txt").as_uri(),
    lambda site: f"{SAMPLES.as_uri()}/../ocr.py",
]


def assert_refused(answer: httpx.Response, field: str, folder: Path) -> None:
    assert answer.status_code in (403, 422), answer.text
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == f"/{field}"
    assert fault["code"] in ("REF_FORBIDDEN", "REF_INVALID")
    if fault["code"] == "REF_FORBIDDEN":
        assert f"{folder}/" in fault["detail"], "it says where the ref may point instead"


@pytest.mark.parametrize("number", range(len(FORBIDDEN_TO_WRITE)))
def test_an_output_is_refused_where_the_tenant_may_not_write(site: Site, number: int) -> None:
    assert_refused(site.submit(output_ref=FORBIDDEN_TO_WRITE[number](site)), "output_ref", site.own)
    assert (site.api_key.read_text(), site.others.read_text()) == (SECRET, SECRET)


@pytest.mark.parametrize("number", range(len(FORBIDDEN_TO_READ)))
def test_an_input_is_refused_where_the_tenant_may_not_read(site: Site, number: int) -> None:
    assert_refused(site.submit(input_ref=FORBIDDEN_TO_READ[number](site)), "input_ref", site.own)


def test_links_that_lead_out_are_not_followed(site: Site) -> None:
    """Acceptance cannot see links; the service meets them when it opens the file."""
    (site.own / "link.txt").symlink_to(site.outside)
    (site.own / "folder").symlink_to(site.outside.parent)
    for ref in ("link.txt", "folder/outside.txt"):
        for field in ("input_ref", "output_ref"):
            job = site.ended(**{field: (site.own / ref).as_uri()})
            error = job["error"]
            assert (job["status"], error["code"]) == ("FAILED_FINAL", "PATH_FORBIDDEN"), job
            assert "symbolic link" in error["message"]
    assert site.outside.read_text() == SECRET


def test_a_tenant_reads_and_writes_in_its_own_folders(site: Site) -> None:
    for folder in (site.own, site.tenants_root / "acme", site.shared_root):
        output = folder / "new" / "out.txt"
        assert site.ended(input_ref=(folder / "in.txt").as_uri(), output_ref=output.as_uri())["status"] == "SUCCEEDED"
        assert output.read_text() == INPUT.strip()
    made = site.own / "new" / "out.txt"
    assert [path.stat().st_mode & 0o777 for path in (made, made.parent)] == [0o600, 0o700]


def test_a_tenant_reads_samples_archives_and_what_its_jobs_left(site: Site) -> None:
    job = site.ended(input_ref=(SAMPLES / "minutes.txt").as_uri())
    assert job["status"] == "SUCCEEDED"
    text_ref = job["steps"][0]["artifacts"]["text_ref"]
    for number, ref in enumerate([(site.archive / "in.txt").as_uri(), text_ref]):
        output = (site.own / f"again-{number}.txt").as_uri()
        assert site.ended(input_ref=ref, output_ref=output)["status"] == "SUCCEEDED"


def test_a_root_that_cannot_be_used_is_refused_by_name_at_the_start(serve: Any) -> None:
    with pytest.raises(AssertionError, match=r"LUCIUS_PLATFORM_FILE_ROOTS.*no/such/folder.*does not exist"):
        serve(LUCIUS_PLATFORM_FILE_ROOTS="/no/such/folder")

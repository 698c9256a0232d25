"""Where `file` refs may lead when a directive is handed straight to the kit, with nobody to check it before."""

from __future__ import annotations

import os
import socket
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.platform.test_workspace_refs import directive

from lucius.platform import NonRetryable, ServiceUnusable, Workspace
from lucius.platform.file_roots import NAME_BYTES_MAX, SAMPLES, read_file_roots, tenant_folder

SECRET = "what only its owner may read"


class Machine:
    """A data folder, three roots, and files of others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.own = self.data / "files" / "acme"
        self.outside = folder / "outside"
        self.roots = {name: folder / name for name in ("tenants", "common", "archive")}
        self.secrets = [
            *(self.data / name for name in ("api-key", "callback-key", "lucius.db", "services/ocr/attempts.db")),
            *(folder / "state" / "ocr" / "attempts.db", self.data / "files" / "globex" / "out.txt"),
            *(self.roots["tenants"] / "globex" / "in.txt", self.outside / "secret.txt"),
            *(self.data / "files" / "acme2" / "in.txt", self.data / "workspace" / "globex" / "job" / "OCR" / "1" / "x"),
        ]
        for path in self.secrets:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(SECRET)
        for path in (self.own, *self.roots.values()):
            path.mkdir(parents=True, exist_ok=True)

    def workspace(self, path: Path | str, tenant: str = "acme") -> Workspace:
        """That of an attempt whose refs both name the path."""
        ref = path if isinstance(path, str) else path.as_uri()
        place = self.data / "workspace" / tenant_folder(tenant) / "job" / "OCR" / "1"
        named = directive(self.folder, tenant, workspace_ref=place.as_uri() + "/", input_ref=ref, output_ref=ref)
        roots = f"{self.roots['tenants']},shared:{self.roots['common']}, readonly:shared:{self.roots['archive']} ,"
        return Workspace(named, files=read_file_roots(roots, str(self.data), [self.folder / "state"]))

    def read(self, path: Path | str, tenant: str = "acme") -> bytes:
        return self.workspace(path, tenant).read_input()

    def write(self, path: Path | str, tenant: str = "acme") -> None:
        workspace = self.workspace(path, tenant)
        workspace.publish(workspace.write("result", "mine"))

    def is_untouched(self) -> bool:
        return all(path.read_text() == SECRET for path in self.secrets)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path.resolve())


def refused(work: Callable[..., Any], *arguments: Any) -> NonRetryable:
    with pytest.raises(NonRetryable) as failure:
        work(*arguments)
    return failure.value


def outcome(work: Callable[[Path], Any], path: Path) -> Any:
    """What came of it, or the code of the failure."""
    try:
        return work(path)
    except NonRetryable as failure:
        return failure.code


def test_no_ref_reaches_what_belongs_to_others_or_to_lucius(machine: Machine) -> None:
    passwd = Path("/etc/passwd")
    for path in (*machine.secrets, passwd, machine.data / "files", SAMPLES.parent / "ocr.py"):
        for work in (machine.read, machine.write):
            failure = refused(work, path)
            assert failure.code == "PATH_FORBIDDEN"
            assert f"{machine.own}/" in failure.message, "it says where the ref may lead instead"
    assert machine.is_untouched()


def test_no_spelling_of_a_path_gets_out(machine: Machine) -> None:
    own = machine.own.as_uri()
    for ref in (
        *(f"{own}/../globex/out.txt", f"{own}/%2e%2e/globex/out.txt", f"{own}%2f..%2fglobex%2fout.txt"),
        *(f"{own}/./../../api-key", f"file:////{machine.data}/api-key", f"file:{machine.data}/%61pi-key"),
    ):
        for work in (machine.read, machine.write):
            assert refused(work, ref).code == "PATH_FORBIDDEN"
    assert machine.is_untouched()


def test_links_are_not_followed_wherever_they_lead(machine: Machine) -> None:
    """To a file, to a folder, to a place inside the tenant's own folder, and the tenant's own folder itself."""
    (machine.own / "inside").mkdir()
    (machine.own / "inside" / "in.txt").write_text("mine")
    for name, target in {
        "file": machine.outside / "secret.txt",
        "folder": machine.outside,
        "here": machine.own / "inside",
        "relative": Path("../globex"),
        "nowhere": machine.outside / "new",
    }.items():
        (machine.own / name).symlink_to(target)
    (machine.roots["tenants"] / "acme").symlink_to(machine.roots["tenants"] / "globex")
    named = ("file", "folder/secret.txt", "here/in.txt", "relative/out.txt", "nowhere", "folder/new/deep.txt")
    for path in (*(machine.own / name for name in named), machine.roots["tenants"] / "acme" / "in.txt"):
        for work in (machine.read, machine.write):
            failure = refused(work, path)
            assert (failure.code, "symbolic link" in failure.message) == ("PATH_FORBIDDEN", True)
    assert machine.is_untouched()
    assert sorted(path.name for path in machine.outside.iterdir()) == ["secret.txt"]


@pytest.mark.parametrize("number", range(7))
def test_a_folder_swapped_for_a_link_while_it_is_opened_leads_nowhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The swap comes right before the n-th file or folder is opened, for every n that there is."""
    (machine.outside / "in.txt").write_text(SECRET)
    real_open, opened = os.open, 0

    def swapping(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        nonlocal opened
        if opened == number:
            (machine.own / "folder").rename(machine.own / "moved")
            (machine.own / "folder").symlink_to(machine.outside)
        opened += 1
        return real_open(path, flags, mode, dir_fd=dir_fd)

    for work in (machine.read, machine.write):
        (machine.own / "folder").mkdir()
        (machine.own / "folder" / "in.txt").write_text("mine")
        opened = 0
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", swapping)
            assert outcome(work, machine.own / "folder" / "in.txt") in (b"mine", None, "PATH_FORBIDDEN")
        assert [path.read_text() for path in machine.outside.iterdir()] == [SECRET, SECRET]
        if (machine.own / "folder").is_symlink():
            (machine.own / "folder").unlink()
            (machine.own / "moved").rename(machine.own / "folder")
        for path in ((machine.own / "folder" / "in.txt"), (machine.own / "folder")):
            path.unlink() if path.is_file() else path.rmdir()


def test_a_folder_swapped_again_and_again_never_leads_out(machine: Machine) -> None:
    """`folder` is now a folder and now a link to somewhere else, as fast as another thread can swap them."""
    folder, link, spare = (machine.own / name for name in ("folder", "link", "spare"))
    folder.mkdir()
    (folder / "in.txt").write_text("mine")
    link.symlink_to(machine.outside)
    (machine.outside / "in.txt").write_text(SECRET)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            folder.rename(spare)
            link.rename(folder)
            spare.rename(link)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        read = {outcome(machine.read, folder / "in.txt") for _ in range(200)}
    finally:
        stop.set()
        swapping.join(10)
    assert read <= {b"mine", "PATH_FORBIDDEN", "INPUT_NOT_FOUND"}


def test_only_regular_files_are_read_and_nothing_waits_for_a_writer(machine: Machine) -> None:
    os.mkfifo(machine.own / "fifo")
    (machine.own / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(machine.own)  # The name of a socket is short.
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for name in ("fifo", "folder", "socket", ""):
            assert refused(machine.read, machine.own / name).code == "INPUT_NOT_A_FILE"
        for name, code in {
            "fifo": "OUTPUT_FORBIDDEN",
            "socket": "OUTPUT_FORBIDDEN",
            "folder": "OUTPUT_REF_INVALID",
        }.items():
            assert refused(machine.write, machine.own / name).code == code
    assert refused(machine.read, machine.roots["archive"]).code == "INPUT_NOT_A_FILE"
    assert refused(machine.read, machine.own / "none.txt").code == "INPUT_NOT_FOUND"


def test_a_hard_link_is_read_from_a_readonly_root_only_and_never_written_through(machine: Machine) -> None:
    secret = machine.outside / "secret.txt"
    for folder in (machine.own, machine.roots["archive"]):
        (folder / "hard.txt").hardlink_to(secret)
    assert refused(machine.read, machine.own / "hard.txt").code == "INPUT_FORBIDDEN"
    assert machine.read(machine.roots["archive"] / "hard.txt") == SECRET.encode()
    machine.write(machine.own / "hard.txt")
    assert (secret.read_text(), (machine.own / "hard.txt").read_text()) == (SECRET, "mine")


def test_a_tenant_uses_its_folders_and_those_that_are_shared(machine: Machine) -> None:
    tenants, common, archive = machine.roots.values()
    for folder in (machine.own, tenants / "acme", common):
        machine.write(folder / "new" / "deep" / "out.txt")
        assert machine.read(folder / "new" / "deep" / "out.txt") == b"mine"
    (archive / "in.txt").write_text("old")
    assert machine.read(archive / "in.txt") == b"old"
    assert machine.read(SAMPLES / "minutes.txt")
    for path in (archive / "in.txt", archive / "new.txt", SAMPLES / "minutes.txt"):
        assert refused(machine.write, path).code == "PATH_FORBIDDEN"
    assert refused(machine.read, tenants / "in.txt").code == "PATH_FORBIDDEN"


def test_files_in_the_data_folder_are_for_their_owner_alone(machine: Machine) -> None:
    before = os.umask(0o022)
    try:
        for folder, modes in {machine.own: [0o600, 0o700], machine.roots["common"]: [0o644, 0o755]}.items():
            machine.write(folder / "new" / "out.txt")
            made = folder / "new" / "out.txt"
            assert [path.stat().st_mode & 0o777 for path in (made, made.parent)] == modes
    finally:
        os.umask(before)
    kept = machine.data / "workspace" / "acme" / "job" / "OCR" / "1"
    assert [path.stat().st_mode & 0o777 for path in (kept, kept / "result")] == [0o700, 0o600]


def test_a_data_folder_may_be_named_by_a_link_to_it(machine: Machine) -> None:
    link = machine.folder / "link"
    link.symlink_to(machine.data)
    (machine.own / "in.txt").write_text("mine")
    roots = read_file_roots("", str(link))
    for folder in (link, machine.data):
        named = directive(machine.folder, input_ref=(folder / "files" / "acme" / "in.txt").as_uri())
        assert Workspace(named, files=roots).read_input() == b"mine"


# --- The names of tenants' folders -----------------------------------------------------------------------------------

SAFE = st.characters(exclude_characters="/\\#?", exclude_categories=("Cc", "Cs"))
TENANTS = st.text(SAFE, min_size=1, max_size=128).map(lambda text: text.strip().lower()).filter(bool)


@pytest.mark.parametrize("tenant", ["acme", "acme ltd", "50%", "日本", "a:b&c", "müller", "a.b", "x" * 128])
def test_a_plain_tenant_has_a_folder_of_its_name(tenant: str) -> None:
    assert tenant_folder(tenant) == tenant


@pytest.mark.parametrize("tenant", [".", "..", "...", ".hidden", "~x", "日" * 100, "a/b", "", "a\0b", "straße"])
def test_any_other_tenant_has_a_folder_by_its_digest(tenant: str) -> None:
    folder = tenant_folder(tenant)
    assert folder.startswith("~")
    assert len(folder) == 65
    assert tenant_folder(folder) != folder, "so no tenant can be called like another one's folder"


@given(TENANTS, TENANTS)
def test_two_tenants_never_share_a_folder_on_any_file_system(one: str, other: str) -> None:
    folders = [tenant_folder(one), tenant_folder(other)]
    assert all(len(name.encode()) <= NAME_BYTES_MAX and name not in (".", "..") and "/" not in name for name in folders)
    alike = [unicodedata.normalize("NFKC", name).casefold() for name in folders]
    assert (alike[0] == alike[1]) == (one == other)


def test_two_spellings_of_a_letter_are_two_folders() -> None:
    assert len({tenant_folder(name).casefold() for name in ("caf\u00e9", "cafe\u0301", "cafe")}) == 3


def test_a_tenant_of_the_longest_name_has_files(machine: Machine) -> None:
    tenant = "日" * 128
    path = machine.data / "files" / tenant_folder(tenant) / "out.txt"
    machine.write(path, tenant)
    assert machine.read(path, tenant) == b"mine"
    assert refused(machine.read, path).code == "PATH_FORBIDDEN"


# --- The setting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("relative/folder", r"'relative/folder' is not an absolute path"),
        ("shared:relative", r"'shared:relative' is not an absolute path"),
        ("common:{0}/common", r"is not an absolute path, optionally with the prefix shared: or readonly:"),
        ("{0}/common/../data", r"is not an absolute path"),
        ("{0}/none", r"the folder '.*/none' does not exist"),
        ("{0}/outside/secret.txt", r"does not exist"),
        ("{0}/data", r"'.*/data' and '.*/data' overlap"),
        ("readonly:{0}", r"overlap; a root must be separate"),
        ("{0}/data/files/acme", r"overlap"),
        ("shared:{0}/state", r"overlap"),
        ("{0}/common,shared:{0}/common", r"overlap"),
        ("{0}/link", r"'.*/link' and '.*/data' overlap"),
    ],
)
def test_a_root_that_cannot_be_used_is_refused_by_name(machine: Machine, setting: str, said: str) -> None:
    (machine.folder / "link").symlink_to(machine.data)
    with pytest.raises(ServiceUnusable, match=said) as failure:
        read_file_roots(setting.format(machine.folder), str(machine.data), [machine.folder / "state"])
    assert str(failure.value).startswith("LUCIUS_PLATFORM_FILE_ROOTS: ")

"""`lucius contract test`: its options, reports and exit codes, and that nothing outlives it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from kit import LUCIUS, broken, environment, run_kit
from planted import WRITES_ALWAYS

SECONDS_MAX = 60.0
QUICK = ("--only", "ack-in-time", "--only", "result-good")


def test_the_report_says_what_happened_why_it_matters_and_what_to_do() -> None:
    ran = run_kit("--only", "odd-tenant", *QUICK, service=broken("keeps-percent"))
    assert ran.exit_code == 1
    assert re.search(r"^PASS     ack-in-time +\d", ran.stdout, re.MULTILINE)
    assert re.search(r"^FAIL     odd-tenant +\d", ran.stdout, re.MULTILINE)
    for word in ("checks", "expected", "happened", "exchange", "why", "do"):
        assert re.search(rf"^ {{9}}{word} +\S", ran.stdout, re.MULTILINE), word
    assert re.search(r"RESULT +\w{8}/1 +status SUCCEEDED +200 APPLIED", ran.stdout)
    assert "3 cases in" in ran.stdout
    assert "\033" not in ran.stdout


def test_a_step_that_is_not_the_last_writes_no_output() -> None:
    right = run_kit("--not-last", "--output", "json", *QUICK, service=broken("writes-no-output"))
    assert (right.exit_code, right.statuses()["result-good"]) == (0, "PASS"), right.stdout
    wrong = run_kit("--not-last", *QUICK, service=broken(WRITES_ALWAYS))
    assert wrong.exit_code == 1
    assert "as last_step is false" in wrong.stdout
    told = run_kit(*QUICK, service=broken("writes-no-output"))
    assert told.exit_code == 1
    assert "pass --not-last" in told.stdout, "whoever tests such a step without the option learns of it"


def test_the_service_s_own_words_are_shown_when_it_dies() -> None:
    dies = "import sys; print('no such model: \\x1b[31mgpt', file=sys.stderr); sys.exit(3)"
    ran = run_kit("--start-seconds", "30", service=[sys.executable, "-c", dies])
    assert ran.exit_code == 4
    assert "exit code 3" in ran.stderr
    assert "no such model" in ran.stderr
    assert "\033" not in ran.stderr


def test_junit_tells_the_failure(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "contract.xml"
    ran = run_kit("--only", "odd-tenant", *QUICK, "--junit", str(path), service=broken("keeps-percent"))
    assert ran.exit_code == 1
    suite = ElementTree.parse(path).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    names = [case.get("name") for case in suite.iter("testcase")]
    assert names == ["ack-in-time", "result-good", "odd-tenant"]
    (failure,) = suite.iter("failure")
    assert "workspace_ref" in str(failure.get("message"))
    assert "percent-decode" in str(failure.text)


def test_json_has_every_case_with_its_verdict() -> None:
    ran = run_kit("--output", "json", *QUICK, service=broken())
    assert ran.exit_code == 0
    report = ran.json()
    assert report["passed"] is True
    assert report["counts"] == {"PASS": 2, "FAIL": 0, "ADVICE": 0, "NOT RUN": 0}
    assert ran.statuses() == {"ack-in-time": "PASS", "result-good": "PASS"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--only", "no-such-case"), "ack-in-time"),
        (("--skip", "no-such-case"), "ack-in-time"),
        (("--only", "idle", "--skip", "idle"), "no case to run"),
        (("--payload", "{"), "not valid JSON"),
        (("--payload", "@no-such-file.json"), "cannot be read"),
        (("--previous", "[]"), "by step id"),
        (("--url", "https://127.0.0.1:1"), "not like http://"),
        (("--url", "http://127.0.0.1:notaport"), "not like http://"),
        (("--pace", "0.1"), "0.5"),
        (("--junit", "."), "directory"),
    ],
)
def test_an_unusable_command_line_is_refused(arguments: tuple[str, ...], told: str) -> None:
    ran = run_kit(*arguments, service=broken())
    assert ran.exit_code == 2
    assert told in ran.stderr


def test_a_command_that_cannot_be_started_is_refused() -> None:
    ran = run_kit(service=["no-such-program-anywhere"])
    assert ran.exit_code == 2
    assert "no-such-program-anywhere" in ran.stderr


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = run_kit("--url", f"http://127.0.0.1:{taken.getsockname()[1]}", service=broken())
    assert ran.exit_code == 2
    assert "--url" in ran.stderr


def test_a_service_that_never_pulls_is_told_from_one_that_fails(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    waits = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    ran = run_kit("--start-seconds", "2", service=[sys.executable, "-c", waits])
    assert ran.exit_code == 4
    assert "never pulled" in ran.stderr
    assert not is_alive(int(pid.read_text()))


def test_a_pull_with_the_wrong_key_is_named() -> None:
    code = "import os, runpy, sys; os.environ['LUCIUS_API_KEY'] = 'another'; sys.argv = sys.argv[1:]; "
    code += "sys.path.insert(0, os.path.dirname(sys.argv[0])); runpy.run_path(sys.argv[0], run_name='__main__')"
    ran = run_kit("--start-seconds", "3", service=[sys.executable, "-c", code, *broken()[1:]])
    assert ran.exit_code == 4
    assert "401 UNAUTHENTICATED" in ran.stderr
    assert "LUCIUS_API_KEY" in ran.stderr


def test_work_that_is_too_quick_is_not_run_and_a_slow_sample_helps() -> None:
    rushed = [*broken(), "--rush"]
    case = ("--only", "heartbeat-keeps-lease", "--pace", "0.5")
    ran = run_kit(*case, service=rushed)
    assert ran.exit_code == 1
    assert "NOT RUN" in ran.stdout
    assert "--slow-payload" in ran.stdout
    assert run_kit(*case, "--allow-not-run", service=rushed).exit_code == 0
    slow = run_kit(*case, "--slow-payload", '{"seconds": 2.5}', service=rushed)
    assert slow.exit_code == 0, slow.stdout


def test_payload_input_and_step_type_reach_the_service(tmp_path: Path) -> None:
    (tmp_path / "in put.txt").write_text("one two three four five six seven", "utf-8")
    (tmp_path / "payload.json").write_text('{"seconds": 0.1}', "utf-8")
    sample = ("--input", str(tmp_path / "in put.txt"), "--payload", f"@{tmp_path / 'payload.json'}")
    ran = run_kit(*QUICK, *sample, "--step-type", "COUNTING", "--previous", '{"ocr": {}}', service=broken())
    assert ran.exit_code == 0, ran.stdout


def test_without_a_command_the_kit_waits_and_does_not_run_what_needs_a_restart() -> None:
    command = [*LUCIUS, "--only", "ack-in-time", "--only", "crash-in-work", "--only", "sigterm-exits"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as kit:
        assert kit.stderr is not None
        told = {}
        while "LUCIUS_CONTRACT_TEST" not in told or "LUCIUS_URL" not in told:
            found = re.match(r"  export (\w+)=(\S+)", line := kit.stderr.readline())
            assert line, "the kit ended before it said what to start the service with"
            told |= {found[1]: found[2]} if found else {}
        with subprocess.Popen(broken(), env=environment() | told) as service:
            try:
                stdout, _ = kit.communicate(timeout=SECONDS_MAX)
            finally:
                service.kill()
    assert kit.returncode == 1
    assert re.search(r"^PASS     ack-in-time", stdout, re.MULTILINE)
    assert len(re.findall(r"^NOT RUN  (?:crash-in-work|sigterm-exits)", stdout, re.MULTILINE)) == 2
    assert "COMMAND" in stdout


def test_the_service_does_not_outlive_a_kit_that_is_terminated(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, sys; open({str(pid)!r}, 'w').write(str(os.getpid())); os.execv(sys.argv[1], sys.argv[1:])"
    command = [*LUCIUS, "--", sys.executable, "-c", code, *broken()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as kit:
        assert kit.stdout is not None
        assert b"PASS" in kit.stdout.readline()
        kit.terminate()
        assert kit.wait(SECONDS_MAX) == 143
    assert not is_alive(int(pid.read_text()))


def is_alive(pid: int) -> bool:
    """Whether the process still runs a moment later; a corpse that nobody has buried yet does not count."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True

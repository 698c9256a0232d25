"""Commands that run a runbook's functions: the worker of a Python file, and the mailbox migration sample."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import EXIT_JOB_FAILED, Unusable

if TYPE_CHECKING:
    from lucius.cli.connection import Connection
    from lucius.functions import FunctionWorker

CONCURRENCY_MAX = 1_000


@click.command()
@click.argument("file_or_module")
@click.option("--worker-id", metavar="ID", help="Take the jobs of this worker id. [the one in the file]")
@click.option(
    "--concurrency",
    type=click.IntRange(1, CONCURRENCY_MAX),
    metavar="N",
    help="Concurrent functions. [LUCIUS_WORKER_CONCURRENCY; 16]",
)
@click.option(
    "--bus", "on_bus", is_flag=True, help="Take jobs from the bus (LUCIUS_BUS, LUCIUS_LEDGER), not over HTTP."
)
@click.pass_obj
def worker(
    connection: Connection, file_or_module: str, worker_id: str | None, concurrency: int | None, on_bus: bool
) -> None:
    """Run the functions that steps call, from Python.

    FILE_OR_MODULE (functions.py, or package.module) defines a lucius.functions.FunctionWorker named `worker`. It takes
    jobs from --url until Ctrl-C or SIGTERM, and then finishes those it holds.
    """
    found = load_worker(file_or_module)
    if worker_id is not None:
        try:
            found.worker_id = type(found)(worker_id).worker_id
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--worker-id") from error
    overrides = {} if concurrency is None else {"concurrency": concurrency}
    if on_bus:
        _run_on_bus(found, overrides)
        return
    found.run(url=connection.url, api_key=connection.key(), **overrides)


def _run_on_bus(found: FunctionWorker, overrides: dict[str, Any]) -> None:
    from lucius.cli.serve.server import run, settings_of
    from lucius.functions import read_settings

    run("run_bus_worker", settings_of(), found, read_settings(**overrides))


@click.command()
@click.option("--up", "alone", is_flag=True, help="Start a server in a temporary folder, and stop it afterwards.")
@click.pass_obj
def sample(connection: Connection, alone: bool) -> None:
    """Run the mailbox migration, and show what happens.

    Publishes a runbook, creates a batch of eight mailboxes, and begins its phases one by one: steps that poll, a
    mailbox that fails and is rolled back, one that joins late and catches up, one that is removed. The functions run in
    this process. Takes about fifteen seconds. Exit code 1 if a result is not as expected.
    """
    from lucius.cli.runbooks.sample import run_against, run_alone

    succeeded = run_alone() if alone else run_against(connection.url, connection.key())
    raise click.exceptions.Exit(0 if succeeded else EXIT_JOB_FAILED)


def load_worker(file_or_module: str) -> FunctionWorker:
    """The `worker` of a file or module, loaded as Python would run it: modules beside it can be imported."""
    from lucius.functions import FunctionWorker

    found = getattr(load_module(file_or_module), "worker", None)
    if not isinstance(found, FunctionWorker):
        raise Unusable(
            f"{file_or_module} has no lucius.functions.FunctionWorker named worker; "
            'it needs a line such as worker = FunctionWorker("exchange")'
        )
    return found


def load_module(file_or_module: str) -> ModuleType:
    path = Path(file_or_module)
    if path.suffix != ".py" and not path.is_file():
        return _imported(file_or_module)
    if not path.is_file():
        raise Unusable(f"{file_or_module} is not a file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Unusable(f"{file_or_module} is not a Python file; it must end in .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _imported(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A failed import inside the module is raised unchanged.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise Unusable(f"{name} is neither a file nor a module that can be imported from here") from error

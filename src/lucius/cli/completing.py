"""What the shell proposes when Tab is pressed: ids and names that the server has.

Whoever types must not wait for a server that is away, nor read its errors between the letters: a short timeout, and no
proposals on any failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from lucius.cli.connection import Connection
from lucius.client.call import Call, Script

TIMEOUT_SECONDS = 1.5
PROPOSED_MAX = 50

Propose = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def connection_of(context: click.Context) -> Connection:
    """The server that the options of `lucius` name. A flag counts more than any variable, and --url or LUCIUS_URL more
    than a profile."""
    options, source = context.params, context.get_parameter_source
    url, key, profile = (options.get(name) or None for name in ("url", "api_key", "server_profile"))
    if profile is not None and source("server_profile") is ParameterSource.COMMANDLINE:
        if url is not None and source("url") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--server-profile names a server, and so does --url: leave one out")
        # What the environment says is about another server.
        url, key = None, key if source("api_key") is ParameterSource.COMMANDLINE else None
    return Connection(url, key, profile)


def complete_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from lucius.cli.ids import is_prefix

    query = {"limit": str(PROPOSED_MAX), **({"job_id_prefix": incomplete} if is_prefix(incomplete) else {})}
    return _proposed(context, incomplete, "/v1/jobs", query, "jobId", ("status", "request_type", "tenant_id"))


def complete_operations(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    query = {"limit": str(PROPOSED_MAX)}
    return _proposed(context, incomplete, "/v1/operations", query, "operationId", ("action", "status"))


def complete_batches(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    query = {"limit": str(PROPOSED_MAX)}
    return _proposed(context, incomplete, "/v1/batches", query, "batch_id", ("runbook", "status"))


def complete_runbooks(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _proposed(context, incomplete, "/v1/runbooks", {}, "name", ())


def complete_protocols(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _proposed(context, incomplete, "/v1/protocols", {}, "id", ("description",))


def complete_commands(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Request types, and files."""
    types = [
        str(name)
        for protocol in _items(context, "/v1/protocols", {})
        for name in protocol.get("request_types") or ()
        if str(name).startswith(incomplete)
    ]
    return [*(CompletionItem(name, help="request type") for name in types), CompletionItem(incomplete, type="file")]


def complete_tenants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _proposed(context, incomplete, "/v1/admin/tenants", {}, "tenant_id", ())


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from lucius.cli.server_profiles import read_profiles

    try:
        known = read_profiles().profiles
    except click.ClickException:
        return []
    return [CompletionItem(name, help=one.url) for name, one in known.items() if name.startswith(incomplete)]


def _proposed(
    context: click.Context,
    incomplete: str,
    path: str,
    query: Mapping[str, str],
    name: str,
    described_by: Iterable[str],
) -> list[CompletionItem]:
    found = []
    for item in _items(context, path, query):
        value = str(item.get(name) or "")
        if value.isprintable() and value.startswith(incomplete.lower() if name == "jobId" else incomplete):
            described = " ".join(str(item[one]) for one in described_by if item.get(one))
            found.append(CompletionItem(value, help="".join(filter(str.isprintable, described))[:80] or None))
    return found


def _items(context: click.Context, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        with connection_of(context.find_root()).open() as client:
            answer = client.run(_read(path, query))
    except Exception:
        return []
    items = answer.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _read(path: str, query: Mapping[str, str]) -> Script[dict[str, Any]]:
    from lucius.client.errors import content_of

    return content_of((yield Call("GET", path, query=dict(query), answer_seconds_max=TIMEOUT_SECONDS)))

"""What can go wrong with a table, by what its caller can do about it. The texts hold no secret."""

from __future__ import annotations


class TableFailed(Exception):
    """The text names the table."""


class TableConflict(TableFailed):
    """A row exists already, or has changed since it was read: nothing was written."""


class TableNotFound(TableFailed):
    """A row that the write names is gone, or the table itself does not exist."""


class TableRefused(TableFailed):
    """The request is not one that Azure carries out: too large, or a key that it does not allow."""


class TableUnavailable(TableFailed):
    """Not now: unreachable, overloaded, forbidden, or no answer in time. `is_unknown` says that a write may or may not
    have been carried out."""

    def __init__(self, message: str, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown


def is_uncertain(error: BaseException) -> bool:
    """Whether a write that ends with this may have been carried out nevertheless: its answer was lost, or it was
    refused because the SDK's own first try succeeded."""
    from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

    if isinstance(error, HttpResponseError):
        return error.status_code is None or error.status_code in (404, 408, 409, 412) or error.status_code >= 500
    return isinstance(error, (TimeoutError, ServiceResponseError, ServiceRequestError))


def is_broken_connection(error: BaseException) -> bool:
    """Whether the connection ended before the answer came. If no byte of an answer had come, Azure's SDK calls it a
    failed request, although the request may have been carried out."""
    from azure.core.exceptions import (
        ServiceRequestError,
        ServiceRequestTimeoutError,
        ServiceResponseError,
        ServiceResponseTimeoutError,
    )

    is_late = isinstance(error, (ServiceRequestTimeoutError, ServiceResponseTimeoutError))
    return isinstance(error, (ServiceRequestError, ServiceResponseError)) and not is_late


def sorted_out(error: BaseException, place: str) -> TableFailed | None:
    """An error of the SDK as one of these; None for any other."""
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )

    if isinstance(error, TimeoutError):
        return TableUnavailable(f"{place}: no answer in time", is_unknown=True)
    if not isinstance(error, AzureError):
        return None
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    reason = str(getattr(code, "value", code) or type(error).__name__)
    if status is None:
        # A credential that gets no token fails like this, before any request is sent.
        refused = isinstance(error, ClientAuthenticationError)
        hint = "; see LUCIUS_AZURE_CREDENTIAL" if refused else ""
        if isinstance(error, ServiceRequestError):
            reason = f"out of reach ({reason})"
        return TableUnavailable(f"{place}: {reason}{hint}", isinstance(error, ServiceResponseError))
    detail = f"{place}: {reason} (HTTP {status})"
    if reason == "TableNotFound":
        return TableNotFound(f"{detail}; create the tables with `lucius db upgrade`")
    if status in (401, 403):
        return TableUnavailable(f"{detail}; this process needs the role Storage Table Data Contributor")
    if status == 404:
        return TableNotFound(detail)
    if status in (409, 412):
        return TableConflict(detail)
    if 400 <= status < 500 and status not in (408, 429):
        return TableRefused(detail)
    return TableUnavailable(detail, is_unknown=status in (408, 500, 504))

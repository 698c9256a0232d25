"""What can go wrong with a blob, by what its caller can do about it. The texts hold no secret."""

from __future__ import annotations


class BlobFailed(Exception):
    """The text names the blob."""


class BlobNotFound(BlobFailed):
    """The blob does not exist, nor perhaps its container."""


class BlobContainerNotFound(BlobNotFound):
    """Not even the container exists."""


class BlobConflict(BlobFailed):
    """It exists, or has changed, or is leased: the condition of the call does not hold."""


class BlobForbidden(BlobFailed):
    """This process may not do that there."""


class BlobTooLarge(BlobFailed):
    """It is larger than the caller reads."""


class BlobRefused(BlobFailed):
    """The request is not one that Azure carries out: a name that it does not allow, for instance."""


class BlobUnavailable(BlobFailed):
    """Not now: unreachable, overloaded, or no answer in time."""


_BY_STATUS = {401: BlobForbidden, 403: BlobForbidden, 404: BlobNotFound, 409: BlobConflict, 412: BlobConflict}


def sorted_out(error: BaseException, place: str) -> BlobFailed | None:
    """An error of the SDK as one of these; None for any other."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ServiceRequestError

    if not isinstance(error, AzureError):
        return None
    status = error.status_code if isinstance(error, HttpResponseError) else None
    code = getattr(error, "error_code", None)
    reason = str(getattr(code, "value", code) or type(error).__name__)
    if status is None:
        # A credential that gets no token fails like this, before any request is sent.
        kind = BlobForbidden if isinstance(error, ClientAuthenticationError) else BlobUnavailable
        return kind(
            f"{place}: out of reach ({reason})" if isinstance(error, ServiceRequestError) else f"{place}: {reason}"
        )
    detail = f"{place}: {reason} (HTTP {status})"
    if reason == "ContainerNotFound":
        return BlobContainerNotFound(f"{detail}; create the container")
    if status in _BY_STATUS:
        return _BY_STATUS[status](detail)
    return BlobRefused(detail) if 400 <= status < 500 and status not in (408, 429) else BlobUnavailable(detail)

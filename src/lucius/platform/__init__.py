"""The platform kit, for building platform services. Of the rest of lucius it imports only `client` and `kit`.

    from lucius.platform import PlatformService

    service = PlatformService("ocr")

    @service.step("OCR")
    def ocr(directive, workspace):
        text = read(workspace.read_input())
        return {"text_ref": workspace.write("ocr/output.txt", text).as_uri()}

    service.run()

The path of a directive: `sources` and the consumer of `lucius.kit` receive it, `directive` parses it, an
`idempotency_store` records it, `callback_client` acknowledges it and later sends its result, `steps` runs the function,
`workspace` has its files (`file_roots` says which refs may be opened, `safe_files` opens them), `errors` classifies
failures; `worker` connects them. The health of `lucius.kit`, `metrics` and `traces` make it observable.
"""

from lucius.platform.attempt import Attempt, Result
from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable, RateLimited, Retryable, ServiceUnusable, StepFailed, WorkStopped
from lucius.platform.rehearsal import Rehearsed, rehearse
from lucius.platform.service import PlatformService
from lucius.platform.settings import PlatformSettings, read_settings
from lucius.platform.workspace import Workspace

__all__ = [
    "Attempt",
    "Directive",
    "NonRetryable",
    "PlatformService",
    "PlatformSettings",
    "RateLimited",
    "Rehearsed",
    "Result",
    "Retryable",
    "ServiceUnusable",
    "StepFailed",
    "WorkStopped",
    "Workspace",
    "read_settings",
    "rehearse",
]

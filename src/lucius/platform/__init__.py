"""The platform kit: what a platform service is built on. It imports nothing of the rest of lucius.

    from lucius.platform import PlatformService

    service = PlatformService("ocr")

    @service.step("OCR")
    def ocr(directive, workspace):
        text = read(workspace.read_input())
        return {"text_ref": workspace.write("ocr/output.txt", text).as_uri()}

    service.run()

What a directive goes through here, in order: `sources` and `consumer` take it, `directive` reads it, an
`idempotency_store` remembers it, `callback_client` acknowledges it and later sends its result, `steps` runs the
function, `workspace` keeps its files, `errors` classifies what went wrong; `worker` joins them. `health`, `metrics` and
`traces` show it.
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

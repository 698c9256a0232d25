"""The platform kit, for building platform services. Of the rest of lucius it imports only `client` and `kit`, and where
refs lead beyond this machine `azure` and `public_addresses`, which need no package until they are used.

    from lucius.platform import PlatformService

    service = PlatformService("ocr")

    @service.step("OCR")
    def ocr(directive, workspace):
        text = read(workspace.read_input())
        return {"text_ref": workspace.write("ocr/output.txt", text).as_uri()}

    service.run()

The path of a directive: `sources` and the consumer of `lucius.kit` receive it, `directive` parses it, an
`idempotency_store` records it, `callback_client` acknowledges it and later sends its result, `steps` runs the function,
`workspace` has its files, `errors` classifies failures; `worker` connects them. `refs` says where a ref leads: to
`local_storage` (`file_roots` says what may be opened, `safe_files` opens it), to `blob_storage` (`blob_roots`,
`blob_files`) or to `https_inputs`. The health of `lucius.kit`, `metrics` and `traces` make it observable.
"""

from lucius.platform.attempt import Attempt, Result
from lucius.platform.blob_path import BlobPath
from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable, RateLimited, Retryable, ServiceUnusable, StepFailed, WorkStopped
from lucius.platform.rehearsal import Rehearsed, rehearse
from lucius.platform.service import PlatformService
from lucius.platform.settings import PlatformSettings, read_settings
from lucius.platform.workspace import Workspace

__all__ = [
    "Attempt",
    "BlobPath",
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

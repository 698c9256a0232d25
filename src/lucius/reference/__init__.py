"""Three small, real platform services: `ocr`, `embedding` and `sis`.

They are built on the platform kit like any service, and know LUCIUS only by the directive and the callbacks: nothing
here imports the rest of lucius. `ocr`, `embedding` and `sis` each contain a service and its step; `serving` runs them.
"""

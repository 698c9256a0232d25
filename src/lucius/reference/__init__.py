"""Three small, real platform services: `ocr`, `embedding` and `sis`.

They know LUCIUS only as any service does: over HTTP, by the directive and the callbacks. Nothing here imports the rest
of lucius. `worker` carries directives and callbacks; `ocr`, `embedding` and `sis` do the work and know no HTTP.
"""

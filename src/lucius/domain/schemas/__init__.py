"""One JSON Schema (2020-12) file per message: the published contract of commands, directives and callbacks."""

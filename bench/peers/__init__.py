"""The same three-step work on other orchestrators, beside LUCIUS in the same rounds."""

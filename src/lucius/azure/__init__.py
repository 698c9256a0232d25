"""What LUCIUS uses of Azure, whoever in it does: who the process is, Blob, secrets. Imports nothing of the rest, so
that services on the platform kit can use it too. The SDKs are in the extra `azure` and are imported late."""

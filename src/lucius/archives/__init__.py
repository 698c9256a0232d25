"""Archives of jobs: files by day and tenant, in a folder or a Blob container."""

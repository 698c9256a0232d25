"""The work of one transaction on batches: facts in, consequences, progress, jobs out."""

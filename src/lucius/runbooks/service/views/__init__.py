"""Views of runbooks: batches, members and events, a page at a time, straight from the tables."""

"""Every call as a script that returns plain JSON, grouped by subject."""

"""The scheduler: looks at the source and at the clock, changes members and phases, and says so in messages."""

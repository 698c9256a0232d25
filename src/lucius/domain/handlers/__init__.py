"""What each input does to a job: one handler for each, called by `decide`."""

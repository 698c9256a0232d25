"""`lucius up` and the other commands that run or maintain a server."""

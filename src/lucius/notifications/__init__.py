"""Notifications as rows: recorded in the transaction of what they tell, then sent by `lucius.notifiers`."""

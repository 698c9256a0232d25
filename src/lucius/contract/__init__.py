"""The contract kit: plays the orchestrator against one platform service, and says what the service does wrong.

It knows services over HTTP only, and imports nothing else of LUCIUS: the schemas of the messages are read as files.
"""

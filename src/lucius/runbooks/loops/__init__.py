"""Background loops: the orchestrator consumes messages, the scheduler watches sources and due times."""

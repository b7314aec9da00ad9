"""The agent pod's two programs: the keeper (PID 1) and the agent process it guards."""

"""PID 1 of the agent container: holds the run's Kubernetes Lease and the agent process's life.

Protocol: design 03-ownership, steps 4, 7 and 8. Imports neither the store nor LangGraph nor pydantic,
and starts the agent before it imports its own Kubernetes client.
"""

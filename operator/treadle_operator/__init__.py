"""The operator: watches Agents, Threads, Runs and their Pods; observes, decides, acts. Runs no agent code."""

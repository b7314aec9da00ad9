"""The thread's state: channels and their reducers (05-runtime, "Thread state")."""

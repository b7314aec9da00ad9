"""Graphs: how one is found by `module:attribute`, and the built-in agent."""

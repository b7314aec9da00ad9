"""The built-in tools: bounded, path-safe, errors told to the model in words."""

"""A real Kubernetes on this machine, by kind, also where there is neither an engine nor an image registry.

Run it as a program: ``PYTHONPATH=tests/support python3 -m localcluster --help``. It uses the standard library
alone, because it has to work before the project's virtual environment exists.
"""

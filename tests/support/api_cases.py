"""Good and bad objects of our kinds, as data: tried against the models and against the real API server."""

from support.api_cases_agent import AGENTS
from support.api_cases_run import RUNS
from support.api_cases_thread import THREADS

CREATE = (*RUNS, *THREADS, *AGENTS)

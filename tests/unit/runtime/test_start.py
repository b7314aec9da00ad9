"""What an agent has to import before it can ask for its assignment."""

import subprocess
import sys


def test_a_session_begins_without_langgraph_so_that_the_lease_is_taken_while_it_is_imported() -> None:
    told = (
        "import sys, treadle_runtime.session\n"
        "print([name for name in ('langgraph', 'langchain_core', 'langsmith') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"

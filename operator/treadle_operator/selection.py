"""Which objects the operator looks at, for the watch and for full lists alike.

What has ended is left out by the server: 10 000 finished Runs then cost the operator nothing (R96).
"""

from typing import Final

from treadle_api.names import LABEL_MANAGED_BY, LABEL_RUN, MANAGED_BY

FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed", "Cancelled", "Interrupted"})

UNFINISHED_RUNS: Final = ",".join(f"status.phase!={phase}" for phase in sorted(FINISHED_PHASES))
"""Field selector of Runs."""
LIVING_PODS: Final = "status.phase!=Failed,status.phase!=Succeeded"
"""Field selector of Pods."""
OUR_PODS: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
"""Label selector of Pods."""
RUN_LEASES: Final = LABEL_RUN
"""Label selector of Leases: those of runs, whatever the run."""

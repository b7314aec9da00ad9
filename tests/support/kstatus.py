"""How readers of kstatus (Flux, kpt, Helm) judge an object; the order is that of cli-utils' pkg/kstatus."""

from collections.abc import Mapping
from typing import Any


def kstatus(obj: Mapping[str, Any]) -> str:
    """Terminating, InProgress, Failed or Current."""
    metadata, status = obj["metadata"], obj.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress"
    for condition in status.get("conditions", ()):
        if condition["status"] == "True" and condition["type"] == "Reconciling":
            return "InProgress"
        if condition["status"] == "True" and condition["type"] == "Stalled":
            return "Failed"
    for condition in status.get("conditions", ()):
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"

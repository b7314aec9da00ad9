"""Runs of the store whose object is gone: deleted while the store did not answer, or by force.

The slow poll finds them. They are settled as cancelled, by the same statement as a deletion in mid-run.
"""

from treadle_api.reasons import Reason
from treadle_api.records import RunRecord, RunStatus
from treadle_operator.lifecycle.actions import Decision, OrphanDecision, RequestCancel, SettleOrphan
from treadle_operator.lifecycle.ending import revoke


def decide_orphan(record: RunRecord) -> OrphanDecision:
    """What to do about a record for which a live read found no Run object with its uid. Its pods and Lease
    are owned by the object and go with it (garbage collection)."""
    if record.status.terminal:
        return Decision(revoke(record))
    intent = () if record.cancel else (RequestCancel("Immediate", Reason.DELETED),)
    told = "The Run object is gone"
    settle = SettleOrphan(RunStatus.CANCELLED, Reason.DELETED, told, record.thread_token)
    return Decision((*intent, settle, *revoke(record)))

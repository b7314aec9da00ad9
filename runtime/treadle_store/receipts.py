"""Receipts: the durable `run.delivery` by which a run is over."""

from treadle_api.records import FencingToken, Receipt, RunUID
from treadle_store.pool import Executor
from treadle_store.statement import fetch_one


async def read_receipt(db: Executor, run_id: RunUID) -> Receipt | None:
    """The run's receipt, None while it has none. For operator and gateway. Raises StoreError."""
    row = await fetch_one(
        db,
        """SELECT token, encode(digest, 'hex') AS digest, payload, created_at
             FROM treadle.receipts WHERE run_id = $1 AND kind = 'run.delivery'""",
        run_id,
    )
    if row is None:
        return None
    return Receipt(
        run_id=run_id,
        token=FencingToken(row["token"]),
        digest=row["digest"],
        payload=row["payload"],
        created_at=row["created_at"],
    )

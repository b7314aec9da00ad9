"""The integration tier: real Postgres and Redis, started by the fixtures, never skipped."""

from support.stores import namespace, redis_url, store, store_server

__all__ = ["namespace", "redis_url", "store", "store_server"]

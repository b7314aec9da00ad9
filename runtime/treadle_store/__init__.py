"""The durable record: everything that was promised, in Postgres, behind a fencing token."""

"""HTTP access to runs: live streams with replay, events, receipts, artifacts."""

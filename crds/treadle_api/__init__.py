"""The contract between Treadle's programs, people and GitOps: nothing here talks to anything."""

"""Files, locks and Delta logs, and DuckDB over them: what survives a crash, and how."""

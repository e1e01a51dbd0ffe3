"""SELECTs as text: those of views, in DuckDB, and those of steps, in Spark."""

"""Everything that runs on Spark: the session, and the steps of a pipeline made ready to run."""

"""A pipeline in operation: run, schedule, pause, back up, check, drill and try it out."""

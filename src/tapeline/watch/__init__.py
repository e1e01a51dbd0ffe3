"""What happened: status, audit, housekeeping."""

"""Making it happen: session, intake, ingest, flow."""

"""What records look like: one module per format splits files, decodes records or encodes rows."""

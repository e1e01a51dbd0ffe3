"""What Tapeline is measured against, and how. Each peer runs as its own process and prints JSON."""

"""Earlier names, for tests of projects made by an earlier version. Use tapeline.testing."""

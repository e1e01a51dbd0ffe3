"""What tests share: servers, pipelines with their oracles, and ways to run them. No tests."""

from pathlib import Path

import pytest

# pytest explains a failed assertion outside of tests only where it is told to.
HERE = Path(__file__).parent
pytest.register_assert_rewrite(*(f"{__name__}.{path.stem}" for path in HERE.glob("[!_]*.py")))

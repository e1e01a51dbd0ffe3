"""Commands that only read the books do without pandas, whose import takes a third of their time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_own_process = False


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left aside", name=fullname)
        return None


def this_process_is_ours() -> None:
    """Say that nothing but one command runs in this process."""
    global _own_process  # noqa: PLW0603
    _own_process = True


def leave_pandas_aside() -> None:
    """Let PyArrow find no pandas. It looks once, at its first conversion.

    Does nothing where other code shares the process, or where the pipeline imports pandas.
    """
    if not _own_process or "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)

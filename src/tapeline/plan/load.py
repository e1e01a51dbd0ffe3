"""Loading a pipeline: the Pipeline that a file or an installed module declares."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

from tapeline.declare import Pipeline
from tapeline.errors import DeclarationError, TapelineError
from tapeline.settings import (
    Settings,
    activate,
    modules_with_options,
    refuse_unknown_options,
)

USER = "tapeline_user_"  # a pipeline file as a module


def load_pipeline(target: str, settings: Settings) -> Pipeline:
    """Import `target`, a path such as trades/pipeline.py or a module such as tapeline.trades."""
    activate(settings)
    module = _import(target, settings.project)
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        raise DeclarationError(
            f"{target} declares {len(found)} pipelines. A file must declare exactly one: pipeline "
            "= Pipeline('name')."
        )
    refuse_unknown_options(settings, found[0].name)
    return found[0]


def _import(target: str, project: Path) -> object:
    path = (project / target).absolute()
    if path.is_dir() and not target.isidentifier():  # a package is a folder, too
        raise DeclarationError(
            f"{target} is a folder. Give the pipeline file, such as pipeline.py."
        )
    try:
        if path.suffix == ".py":
            return _import_file(path, target)
        if target in sys.modules:
            return _import_again(target)
        return importlib.import_module(target)
    except TapelineError:
        raise
    except ModuleNotFoundError as error:
        raise DeclarationError(
            f"{target} cannot be imported: {error}. Give a path such as pipeline.py or a module."
        ) from None
    except SyntaxError as error:
        raise DeclarationError(
            f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
        ) from None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise DeclarationError(
            f"{last.filename}:{last.lineno}: {type(error).__name__}: {error}"
        ) from error


def _import_again(target: str) -> object:
    """Load a module and its own pipelines again: options may have changed."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{target}.") and _declares(module):
            importlib.reload(module)
    return importlib.reload(sys.modules[target])


def _read_options_again() -> None:
    """Load modules that read options once more: a file may import what another load imported."""
    read = {name for name in modules_with_options() if not name.startswith(USER)}
    around = {name.rpartition(".")[0] for name in read}
    again = read | {name for name in around if _declares(sys.modules.get(name))}
    for name in sorted(again, key=lambda one: -one.count(".")):
        if name in sys.modules and name != "__main__":
            importlib.reload(sys.modules[name])


def _declares(module: object) -> bool:
    values = vars(module).values() if module else ()
    return any(isinstance(value, Pipeline) for value in values)


def _import_file(path: Path, target: str) -> object:
    if not path.exists():
        raise DeclarationError(
            f"{target}: no such file in {path.parent}. Give the pipeline file, and its folder with "
            "--project."
        )
    name = f"{USER}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"{target} cannot be imported. Give a Python file.")
    _read_options_again()
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

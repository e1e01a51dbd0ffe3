"""Settings say where; code says what. tapeline.toml < TAPELINE_* environment < flags.

By hand: see decision 26 for what pydantic-settings would cost and not do.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, get_args, get_type_hints

from tapeline.errors import DeclarationError, did_you_mean

FILE = "tapeline.toml"
PATTERN_CHARACTERS = "*?[]{}%"
PREFIX = "TAPELINE_"
FAR = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")  # s3a://, hdfs://; a Path keeps one "/"
# Read elsewhere, not settings: where the jars are, the fault drills, the benchmarks' folder.
OTHER_VARIABLES = {"TAPELINE_JARS", "TAPELINE_FAILPOINTS", "TAPELINE_BENCH"}


# Settings of earlier versions that nothing reads any more. A file may still have them.
FORMER = {"trigger_milliseconds", "roll_checkpoint_every_batches"}


@dataclass(frozen=True)
class SparkSettings:
    """The session."""

    master: str = "local[2]"
    driver_memory: str = "2g"
    ui: bool = False
    ui_port: int = 4040
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IntakeSettings:
    """What intake takes out of a drop folder, and its limits."""

    keep: Literal["archive", "delete"] = "archive"
    pieces_ahead: int = 8
    poll_milliseconds: int = 50
    settle_seconds: float = 1.0
    files_per_pass: int = 2_000
    records_per_piece: int = 50_000
    bytes_per_piece: int = 16 * 1024 * 1024
    record_bytes: int = 1024 * 1024
    file_bytes: int = 5 * 1024**3
    file_rows: int = 100_000_000
    expansion_ratio: int = 200
    decoded_bytes: int = 64 * 1024 * 1024
    lost_checkpoint: Literal["stop", "start_over"] = "stop"


@dataclass(frozen=True)
class FlowSettings:
    """The limits of one batch. Intake cuts tape batches that fit, and the flow takes whole ones."""

    bytes_per_tape_batch: int = 2 * 1024 * 1024
    records_per_batch: int = 200_000
    bytes_per_batch: int = 128 * 1024 * 1024
    target_batch_seconds: float = 0.0
    identity_keys: int = 200_000_000
    culprits_per_batch: int = 100
    prepared: bool = True


@dataclass(frozen=True)
class HousekeepingSettings:
    """How often the tables are tidied between batches, and how long removed files stay."""

    compact_every_batches: int = 50
    balances_every_batches: int = 50
    compact_target_bytes: int = 16 * 1024 * 1024
    removed_files_hours: int = 1
    keep_archive: str = "forever"


@dataclass(frozen=True)
class SuperviseSettings:
    """How often what failed is tried again, and how long at most between two attempts."""

    attempts: int = 20
    max_wait_seconds: float = 60.0


@dataclass(frozen=True)
class NotifySettings:
    """Who is told when something stops: a command that reads JSON, a webhook that gets it."""

    command: str = ""
    webhook: str = ""
    webhook_format: Literal["json", "slack"] = "json"
    lag_seconds: float = 0.0


@dataclass(frozen=True)
class LogSettings:
    """Where a run says what it does: one line per event, never a record's content."""

    folder: str = ""
    format: Literal["human", "json"] = "human"
    file_megabytes: int = 10
    files: int = 10


@dataclass(frozen=True)
class ServeSettings:
    """Where the pages and the API are, who may ask, and how much."""

    address: str = "127.0.0.1"
    port: int = 8787
    token_file: str = ""
    tokens: str = ""
    behind_proxy: Literal["no", "yes"] = "no"
    trusted_proxies: str = ""
    user_header: str = ""
    user_role: Literal["read", "act"] = "read"
    hosts: str = ""
    acts: Literal["no", "yes"] = "no"
    clients: int = 500
    connections_per_address: int = 300
    request_seconds: float = 20.0
    requests_per_minute: int = 1_200
    answers_megabytes: int = 64


@dataclass(frozen=True)
class KafkaSettings:
    """Where the cluster is, who asks, and what happens when messages have vanished."""

    brokers: str = ""
    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = ""
    password_variable: str = ""
    password_in_clear: Literal["no", "yes"] = "no"
    on_loss: Literal["stop", "go_on"] = "stop"
    wait_seconds: float = 0.05
    registry: str = ""
    registry_username: str = ""
    registry_password_variable: str = ""
    registry_ca_file: str = ""


@dataclass(frozen=True)
class SinkSettings:
    """How much leaves at once, how long a cluster may take, and whose books it may come from."""

    rows_per_delivery: int = 20_000
    answer_seconds: float = 15.0
    on_other_books: Literal["stop", "go_on"] = "stop"


@dataclass(frozen=True)
class PullSettings:
    """Where one pull asks, as whom, and how much it takes."""

    address: str = ""
    secret_variable: str = ""
    timeout_seconds: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024
    password_in_clear: Literal["no", "yes"] = "no"


@dataclass(frozen=True)
class Settings:
    """Everything that may differ between two machines that run the same pipeline."""

    project: Path = field(default_factory=Path.cwd)
    root: Path = Path("tapeline-data")
    spark: SparkSettings = SparkSettings()
    intake: IntakeSettings = IntakeSettings()
    flow: FlowSettings = FlowSettings()
    housekeeping: HousekeepingSettings = HousekeepingSettings()
    supervise: SuperviseSettings = SuperviseSettings()
    notify: NotifySettings = NotifySettings()
    log: LogSettings = LogSettings()
    serve: ServeSettings = ServeSettings()
    kafka: KafkaSettings = KafkaSettings()
    sinks: SinkSettings = SinkSettings()
    pipeline: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pull: Mapping[str, PullSettings] = field(default_factory=dict)

    def refuse_far_root(self) -> None:
        """Books are kept on a local disk: a root elsewhere would become a folder of that name."""
        found = FAR.match(str(self.root))
        if found:
            said = str(self.root).replace(":/", "://", 1)
            raise DeclarationError(
                f"the root '{said}' is not a folder of this machine. The books are kept on a "
                "local disk: set 'root' to a folder."
            )

    def home(self, pipeline: str) -> Path:
        """Where a pipeline's tables and state live."""
        self.refuse_far_root()
        home = self.within(self.root) / pipeline
        if any(char in str(home) for char in PATTERN_CHARACTERS):
            raise DeclarationError(
                f"the path '{home}' contains one of {PATTERN_CHARACTERS}, which Spark or Delta "
                "treat as a pattern. Choose another root."
            )
        return home

    def within(self, path: str | Path) -> Path:
        """A path of the project's, made absolute."""
        return (self.project / path).absolute()


_active = Settings()
_asked: dict[str, set[str]] = {}
_readers: set[str] = set()  # the modules that read options when they are imported


def activate(settings: Settings) -> None:
    """Make these the settings that `option` reads while a pipeline file is imported."""
    global _active  # noqa: PLW0603 - one process runs one pipeline's settings
    _active = settings
    _asked.clear()


def option(name: str, default: str) -> str:
    """A setting of a pipeline's own, such as option("trades.window", "15 minutes").

    It comes from [pipeline.trades] in tapeline.toml or from TAPELINE_PIPELINE_TRADES_WINDOW.
    """
    section, _, key = name.partition(".")
    _readers.add(_importing())
    _asked.setdefault(section, set()).add(key)
    variable = os.environ.get(f"{PREFIX}PIPELINE_{section}_{key}".upper())
    return variable if variable is not None else _active.pipeline.get(section, {}).get(key, default)


def _importing() -> str:
    """The module whose top level is running: the caller may be a function of another module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame is not None else ""


def modules_with_options() -> set[str]:
    """The modules that have read options so far in this process."""
    return set(_readers)


def refuse_unknown_options(settings: Settings, pipeline: str) -> None:
    """Options of a pipeline that its file never asks for are spelling mistakes."""
    known = _asked.get(pipeline, set())
    for key in settings.pipeline.get(pipeline, {}):
        if key not in known:
            hint = did_you_mean(key, known)
            raise DeclarationError(f"{FILE}: [pipeline.{pipeline}] has no option '{key}'.{hint}")


def load_settings(project: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read tapeline.toml in the project's folder and the environment; refuse what is unknown."""
    said: dict[str, Any] = {}
    path = project / FILE
    if path.exists():
        try:
            said = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DeclarationError(f"{path}: {error}") from None
    options = {
        name: {key: str(value) for key, value in section.items()}
        for name, section in said.pop("pipeline", {}).items()
    }
    pulls = _pulls(said.pop("pull", {}), str(path))
    settings = _fill(Settings(project=project, pipeline=options, pull=pulls), said, str(path))
    variables = os.environ if environment is None else environment
    return _from_environment(settings, variables)


def _pulls(said: Any, where: str) -> dict[str, PullSettings]:
    found = {}
    for name, section in said.items() if isinstance(said, Mapping) else [("NAME", said)]:
        if not isinstance(section, Mapping):
            raise DeclarationError(f"{where}: each pull is a section: write [pull.{name}].")
        found[name] = _fill(PullSettings(), section, f"{where} [pull.{name}]")
    return found


def _fill(values: Any, said: Mapping[str, Any], where: str) -> Any:
    """A copy of a settings value with what was said; sections recurse."""
    hints = get_type_hints(type(values))
    known = {f.name for f in fields(values)} - {"project", "pipeline", "pull"}
    changes: dict[str, Any] = {}
    for key, value in said.items():
        if key in FORMER:
            continue
        if key not in known:
            raise DeclarationError(f"{where}: unknown setting '{key}'.{did_you_mean(key, known)}")
        current = getattr(values, key)
        if isinstance(current, Mapping):
            changes[key] = _flat(value, f"{where} [{key}]")
        elif is_dataclass(current):
            if not isinstance(value, Mapping):
                raise DeclarationError(f"{where}: '{key}' is a section: write [{key}].")
            changes[key] = _fill(current, value, f"{where} [{key}]")
        else:
            # Where nothing is the default, nothing may be said: it is off.
            off = getattr(type(values), key, None) == 0
            changes[key] = _typed(value, hints[key], f"{where}: '{key}'", off)
    return replace(values, **changes)


def _flat(said: Any, where: str, before: str = "") -> dict[str, str]:
    """A table of another program's settings, by their names with dots; TOML may nest them."""
    if not isinstance(said, Mapping):
        raise DeclarationError(f"{where} must be a section of names and values.")
    found: dict[str, str] = {}
    for key, value in said.items():
        if isinstance(value, Mapping):
            found |= _flat(value, where, f"{before}{key}.")
        elif isinstance(value, bool):
            found[f"{before}{key}"] = str(value).lower()
        elif isinstance(value, str | int | float):
            found[f"{before}{key}"] = str(value)
        else:
            raise DeclarationError(f"{where}: '{before}{key}' must be a text or a number.")
    return found


def _typed(value: Any, kind: Any, where: str, may_be_zero: bool = False) -> Any:
    choices = get_args(kind)
    if choices:
        if value not in choices:
            raise DeclarationError(f"{where} must be one of {', '.join(choices)}, not {value!r}.")
        return value
    if kind is bool:
        known = {"true": True, "false": False}
        if str(value).lower() not in known:
            raise DeclarationError(f"{where} must be true or false, not {value!r}.")
        return known[str(value).lower()]
    try:
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError
        typed = kind(value)
    except (TypeError, ValueError):
        raise DeclarationError(f"{where} must be of type {kind.__name__}, not {value!r}.") from None
    if isinstance(typed, int | float) and typed <= 0 and not (may_be_zero and typed == 0):
        raise DeclarationError(f"{where} must be above zero, not {value!r}.")
    return typed


def _from_environment(settings: Settings, environment: Mapping[str, str]) -> Settings:
    names: dict[str, tuple[str, ...]] = {f"{PREFIX}ROOT": ("root",)}
    sections = [
        item.name for item in fields(settings) if is_dataclass(getattr(settings, item.name))
    ]
    for section in sections:
        for item in fields(getattr(settings, section)):
            if isinstance(getattr(getattr(settings, section), item.name), Mapping):
                continue  # a table: the file has it
            names[f"{PREFIX}{section}_{item.name}".upper()] = (section, item.name)
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable.startswith(f"{PREFIX}PIPELINE_"):
            continue
        if any(variable.endswith(f"_{name.upper()}") for name in FORMER):
            continue
        if variable.startswith(f"{PREFIX}PULL_"):
            settings = _pull_from_environment(settings, variable, value)
            continue
        if variable not in names:
            hint = did_you_mean(variable, names)
            raise DeclarationError(f"environment: unknown setting {variable}.{hint}")
        said: dict[str, Any] = {names[variable][-1]: value}
        if len(names[variable]) > 1:
            said = {names[variable][0]: said}
        settings = _fill(settings, said, f"environment {variable}")
    return settings


def _pull_from_environment(settings: Settings, variable: str, value: str) -> Settings:
    """TAPELINE_PULL_<NAME>_<SETTING>; names of pulls may hold '_', names of settings are known."""
    known = [item.name for item in fields(PullSettings)]
    said = variable.removeprefix(f"{PREFIX}PULL_").lower()
    key = next((name for name in known if said.endswith(f"_{name}")), None)
    if key is None:
        raise DeclarationError(
            f"environment: unknown setting {variable}. A pull has {', '.join(known)}."
        )
    name = said.removesuffix(f"_{key}")
    before = settings.pull.get(name, PullSettings())
    filled = _fill(before, {key: value}, f"environment {variable}")
    return replace(settings, pull={**settings.pull, name: filled})

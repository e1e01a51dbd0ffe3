"""Settings: where from, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapeline import DeclarationError, option
from tapeline.settings import Settings, activate, load_settings, refuse_unknown_options


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "tapeline.toml").write_text(
        "[flow]\nrecords_per_batch = 10\nbytes_per_batch = 20\n"
    )
    settings = load_settings(tmp_path, {"TAPELINE_FLOW_RECORDS_PER_BATCH": "30"})
    assert settings.flow.records_per_batch == 30
    assert settings.flow.bytes_per_batch == 20


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rot = 'x'", "unknown setting 'rot'. Did you mean 'root'?"),
        ("[flow]\nrecords = 1", "unknown setting 'records'"),
        ("[flow]\nrecords_per_batch = 'many'", "must be of type int"),
        ("[flow]\nrecords_per_batch = -1", "must be above zero"),
        ("flow = 1", "is a section"),
        ("[flow", "tapeline.toml"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "tapeline.toml").write_text(text)
    with pytest.raises(DeclarationError) as error:
        load_settings(tmp_path, {})
    assert why in str(error.value)


def test_an_unknown_variable_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="Did you mean 'TAPELINE_SPARK_MASTER'"):
        load_settings(tmp_path, {"TAPELINE_SPARK_MASTR": "local[1]"})


def test_an_option_of_a_pipeline_comes_from_its_section() -> None:
    settings = Settings(pipeline={"trades": {"window": "1 hour", "windo": "x"}})
    activate(settings)
    assert option("trades.window", "15 minutes") == "1 hour"
    assert option("trades.zone", "UTC") == "UTC"
    with pytest.raises(DeclarationError, match=r"no option 'windo'. Did you mean 'window'"):
        refuse_unknown_options(settings, "trades")
    activate(Settings())


def test_a_pull_has_a_section_and_variables_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tapeline.toml").write_text(
        "[pull.back_office]\naddress = 'http://127.0.0.1:1'\ntimeout_seconds = 5\n"
    )
    variables = {
        "TAPELINE_PULL_BACK_OFFICE_ADDRESS": "http://127.0.0.1:2",
        "TAPELINE_PULL_LEDGER_SECRET_VARIABLE": "LEDGER_PASSWORD",
    }
    pulls = load_settings(tmp_path, variables).pull
    assert pulls["back_office"].address == "http://127.0.0.1:2"
    assert pulls["back_office"].timeout_seconds == 5.0
    assert pulls["ledger"].secret_variable == "LEDGER_PASSWORD"
    with pytest.raises(DeclarationError, match="A pull has address, secret_variable"):
        load_settings(tmp_path, {"TAPELINE_PULL_LEDGER_ADRESS": "x"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[pull.office]\nadress = 'x'", r"\[pull.office\]: unknown setting 'adress'. Did you mean"),
        ("[pull.office]\nanswer_bytes = 0", "must be above zero"),
        ("[pull]\noffice = 'x'", r"write \[pull.office\]"),
        ("pull = 1", r"write \[pull.NAME\]"),
    ],
)
def test_what_is_wrong_with_a_pull_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "tapeline.toml").write_text(text)
    with pytest.raises(DeclarationError, match=why):
        load_settings(tmp_path, {})

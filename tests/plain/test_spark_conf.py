"""Spark's own settings pass through, but for those that would break the engine or show a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapeline import DeclarationError, OperationError
from tapeline.settings import Settings, SparkSettings, load_settings
from tapeline.spark.conf import TUNING, spark_conf
from tapeline.spark.session import _cores, build_session
from tests.support.command_line import tapeline


def said(**conf: str) -> Settings:
    return Settings(spark=SparkSettings(conf=conf))


def test_a_table_of_the_file_reaches_spark_however_toml_nests_it(tmp_path: Path) -> None:
    (tmp_path / "tapeline.toml").write_text(
        "[spark]\nmaster = 'local[3]'\n[spark.conf]\n"
        '"spark.network.crypto.enabled" = true\nspark.io.encryption.keySizeBits = 256\n'
        '"spark.authenticate.secret" = "env:SPARK_SECRET"\n'
        '"spark.driver.host" = "driver.example"\n'
    )
    settings = load_settings(tmp_path, {})
    assert settings.spark.master == "local[3]"
    conf = spark_conf(settings, {"SPARK_SECRET": "only-in-memory"})
    changed = {key: value for key, value in conf.plain.items() if TUNING.get(key) != value}
    assert changed == {
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.keySizeBits": "256",
        "spark.driver.host": "driver.example",
    }
    assert conf.secret == {"spark.authenticate.secret": "only-in-memory"}
    assert "only-in-memory" not in f"{settings}{conf.plain}"


def test_spark_asks_for_a_secret_by_default() -> None:
    assert spark_conf(Settings()).plain["spark.authenticate"] == "true"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("spark.authenticate", "false", "Tapeline needs 'true'"),
        ("spark.sql.session.timeZone", "Asia/Tokyo", "Tapeline needs 'UTC'"),
        ("spark.ui.enabled", "true", "comes from the setting spark.ui"),
        ("spark.sql.ansi.enabled", "false", "Tapeline needs 'true'"),
        ("spark.sql.decimalOperations.allowPrecisionLoss", "false", "Tapeline needs 'true'"),
        ("spark.master", "local[1]", "comes from the setting spark.master"),
        ("spark.jars", "evil.jar", "load unverified code"),
        ("spark.jars.packages", "a:b:1", "load unverified code"),
        ("spark.driver.extraClassPath", "evil.jar", "comes from the jars of jars.sha256"),
        ("spark.sql.catalog.own", "a.b.C", "load unverified code"),
        ("spark.driver.extraLibraryPath", "/tmp", "load unverified code"),
        ("spark.ssl.keyStorePassword", "word", "contains a secret.*env:"),
        ("spark.authenticate.secret", "word", "contains a secret.*env:"),
        ("spark.authenticate.secret", "env:NOT_THERE", "NOT_THERE.*is not set"),
        ("hadoop.x", "1", "not a Spark setting"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(key: str, value: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as told:
        spark_conf(said(**{key: value}), {})
    assert key in str(told.value)


def test_what_is_said_as_it_is_anyway_passes() -> None:
    assert spark_conf(said(**{"spark.authenticate": "true"})).plain == TUNING


@pytest.mark.parametrize("text", ["conf = 1", "[spark.conf]\n'spark.x' = [1]"])
def test_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tapeline.toml").write_text(text if "[" in text else f"[spark]\n{text}\n")
    with pytest.raises(DeclarationError, match=r"\[conf\]"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local[4]", "4"), ("local[8,2]", "8"), ("local[*]", "2"), ("spark://h1:7077", "2")],
)
def test_cores_are_those_of_a_local_master(master: str, cores: str) -> None:
    assert _cores(master) == cores


def test_sparks_ui_is_off_unless_a_setting_says_so(tmp_path: Path) -> None:
    assert spark_conf(Settings()).plain["spark.ui.enabled"] == "false"
    (tmp_path / "tapeline.toml").write_text("[spark]\nui = true\n")
    settings = load_settings(tmp_path, {"TAPELINE_SPARK_UI_PORT": "4444"})
    conf = spark_conf(settings).plain
    assert (conf["spark.ui.enabled"], conf["spark.ui.port"]) == ("true", "4444")
    assert conf["spark.ui.killEnabled"] == "false"
    assert load_settings(tmp_path, {"TAPELINE_SPARK_UI": "false"}).spark.ui is False
    with pytest.raises(DeclarationError, match="'ui' must be true or false, not 'perhaps'"):
        load_settings(tmp_path, {"TAPELINE_SPARK_UI": "perhaps"})


def test_a_standalone_cluster_without_a_secret_is_refused_before_spark_starts() -> None:
    settings = Settings(spark=SparkSettings(master="spark://127.0.0.1:7077"))
    with pytest.raises(OperationError, match=r"needs a secret.*spark.authenticate.secret"):
        build_session(settings)


def test_plan_refuses_such_a_setting_without_spark(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(
        "from tapeline import Files, Pipeline\n"
        "pipeline = Pipeline('small')\npipeline.source('raw', Files('drop/', format='text'))\n"
    )
    (tmp_path / "tapeline.toml").write_text('[spark.conf]\n"spark.sql.ansi.enabled" = false\n')
    done = tapeline(tmp_path, "plan")
    assert done.returncode == 2
    assert "[spark.conf] 'spark.sql.ansi.enabled' cannot be set to 'false'" in done.stderr

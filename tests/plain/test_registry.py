"""A registry that asks who one is, and one that must prove who it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tapeline import DeclarationError, OperationError
from tapeline.connect.schema_registry import RegistryLink
from tapeline.settings import KafkaSettings, Settings
from tests.support.kafka_cluster import make_authority, make_certificate
from tests.support.schema_registry import registry

USER, PASSWORD, VARIABLE = "reader", "q5-Heron: 41", "TRADES_REGISTRY_PASSWORD"
TRADE = {"type": "record", "name": "Trade", "fields": [{"name": "id", "type": "string"}]}
NAMED = {"registry_username": USER, "registry_password_variable": VARIABLE}


def link(project: Path, address: str, **said: str) -> RegistryLink:
    return RegistryLink(Settings(project=project, kafka=KafkaSettings(registry=address, **said)))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)


def test_a_user_with_a_password_gets_a_schema_and_others_are_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry({3: TRADE}, login=f"{USER}:{PASSWORD}") as (address, _):
        assert link(tmp_path, address, **NAMED).schema(3)
        assert link(tmp_path, address, **NAMED).schema(4) is None
        with pytest.raises(OperationError, match=r"schema 3: it refuses an anonymous user \(401\)"):
            link(tmp_path, address).schema(3)
        monkeypatch.setenv(VARIABLE, "wrong-Secret-5")
        with pytest.raises(OperationError, match=rf"'{USER}' .*password in {VARIABLE}") as told:
            link(tmp_path, address, **NAMED).schema(3)
    hidden = (PASSWORD, "wrong-Secret-5", "127.0.0.1")
    assert not any(one in f"{told.value}{KafkaSettings(**NAMED)}" for one in hidden)  # type: ignore[arg-type]


def test_a_registry_proves_who_it_is_by_the_authority_of_a_file(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, "server", days=1)
    with registry({3: TRADE}, f"{USER}:{PASSWORD}", certificate) as (address, asked):
        assert link(tmp_path, address, registry_ca_file=authority.name, **NAMED).schema(3)
        with pytest.raises(OperationError, match=r"not trusted. See kafka.registry_ca_file"):
            link(tmp_path, address, **NAMED).schema(3)
        assert asked == ["/schemas/ids/3"]  # who is not trusted is told nothing


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"registry": "https://me:x@127.0.0.1"}, "kafka.registry contains a user name or password"),
        ({"registry": "http://registry.example", **NAMED}, "sends the password unencrypted"),
        ({"registry_username": USER}, "belong together"),
        ({"registry_username": "a:b", "registry_password_variable": VARIABLE}, "a colon"),
        ({"registry_username": USER, "registry_password_variable": "NO_SUCH"}, "NO_SUCH is not"),
        ({"registry_ca_file": "none.crt"}, "'none.crt' is not a readable"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    with pytest.raises(DeclarationError, match=words) as refusal:
        link(tmp_path, **{"address": said.pop("registry", "https://127.0.0.1"), **said})
    assert PASSWORD not in str(refusal.value)
    assert "me:x" not in str(refusal.value)

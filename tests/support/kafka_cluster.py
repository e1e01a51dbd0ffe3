"""The cluster that tests share: one broker, started when the first test asks for it.

It listens four times: for everybody; behind a line that a test can cut; for users who say who they
are, by SASL over TLS, with rights by topic; and with a certificate that has expired. Certificates
are made by `openssl` for each run, by an authority that lives as long as the run.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tapeline.broker import Broker
from tapeline.settings import KafkaSettings
from tests.support.kafka import refuse_without_kafka
from tests.support.tcp_proxy import Proxy

PATIENCE_SECONDS = 30.0
USER, PASSWORD, VARIABLE = "reader", "k7-Zebra-93!", "TRADES_KAFKA_PASSWORD"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
HOST = "127.0.0.1"
# Who comes without a name, through the first two, may do everything.
PROPERTIES = """
listeners=PLAINTEXT://{host}:$port,LINE://{host}:{inner},SECURE://{host}:{secure},EXPIRED://{host}:{expired},CONTROLLER://{host}:$controller_port
advertised.listeners=PLAINTEXT://{host}:$port,LINE://{host}:{outer},SECURE://{host}:{secure},EXPIRED://{host}:{expired},CONTROLLER://{host}:$controller_port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LINE:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,EXPIRED:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.expired.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/server.pem
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={folder}/expired.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@dataclass(frozen=True)
class Cluster:
    """Tests act as they like through the plain listener; a reader has to say who it is."""

    broker: Broker
    line: Proxy
    secure_port: int
    expired_port: int
    ca_file: Path

    def settings(self, **other: Any) -> KafkaSettings:
        """How a reader reaches it; its password is in the environment."""
        said = {
            "brokers": f"127.0.0.1:{self.secure_port}",
            "security": "SASL_SSL",
            "ca_file": str(self.ca_file),
            "username": USER,
            "password_variable": VARIABLE,
        }
        return KafkaSettings(**(said | other))

    def allow(self, topic: str, *operations: AclOperation) -> None:
        """Let the reader do so much with a topic."""
        self._allow([(ResourceType.TOPIC, topic, operation) for operation in operations])

    def allow_group(self, group: str) -> None:
        """Let the reader write down how far it is."""
        self._allow([(ResourceType.GROUP, group, AclOperation.READ)])

    def allow_transactions(self, name: str) -> None:
        """Let the user deliver under a transactional id."""
        kind = ResourceType.TRANSACTIONAL_ID
        self._allow([(kind, name, one) for one in (AclOperation.WRITE, AclOperation.DESCRIBE)])

    def _allow(self, wanted: list[tuple[ResourceType, str, AclOperation]]) -> None:
        rights = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*",
                operation, AclPermissionType.ALLOW,
            )
            for kind, name, operation in wanted
        ]  # fmt: skip
        admin = self.admin()  # it must live until the answers are there
        for done in admin.create_acls(rights).values():
            done.result(PATIENCE_SECONDS)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The one broker that tests share: never stopped by one of them."""
    refuse_without_kafka()
    folder = tmp_path_factory.mktemp("cluster")
    authority = make_authority(folder)
    make_certificate(folder, "server", days=1)
    make_certificate(folder, "expired", days=0)
    inner, secure, expired = free_ports(3)
    with Proxy(inner) as line:
        lines = PROPERTIES.format(
            host=HOST, inner=inner, outer=line.port, secure=secure, expired=expired,
            folder=folder, scram=SCRAM,
        )  # fmt: skip
        broker = Broker(folder / "broker", properties=lines)
        try:
            broker.start()
            made = Cluster(broker, line, secure, expired, authority)
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            user = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            admin = made.admin()
            admin.alter_user_scram_credentials([user])[USER].result(PATIENCE_SECONDS)
            yield made
        finally:
            broker.stop()


@pytest.fixture(scope="session")
def broker(cluster: Cluster) -> Broker:
    """The shared cluster, through its plain listener."""
    return cluster.broker


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held until the last is found."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def make_authority(folder: Path) -> Path:
    _openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key",
        "-out", "ca.crt", "-days", "1", "-subj", "/CN=authority of a test",
    )  # fmt: skip
    return folder / "ca.crt"


def make_certificate(folder: Path, name: str, days: int) -> Path:
    """A key and a certificate for 127.0.0.1, in one file as Kafka wants them."""
    (folder / "names.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    _openssl(
        folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key",
        "-out", f"{name}.csr", "-subj", "/CN=127.0.0.1",
    )  # fmt: skip
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
        "-CAcreateserial", "-out", f"{name}.crt", "-days", str(days), "-extfile", "names.ext",
    )  # fmt: skip
    text = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
    whole = folder / f"{name}.pem"
    whole.write_text(text)
    return whole


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

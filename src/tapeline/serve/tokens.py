"""Tokens. Each has a name, which is saved with its actions, and a role. Secrets are in private
files or in the environment, never in the settings."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tapeline.errors import DeclarationError
from tapeline.serve.proxies import Proxies
from tapeline.settings import ServeSettings
from tapeline.store.files import create_private, is_private, is_there, read_bytes

Role = Literal["read", "act"]
ROLES: tuple[Role, ...] = ("read", "act")
# No '@' in a name, so that it cannot look like user@machine, which the command line records.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LEAST_CHARACTERS = 16
OPERATOR = "operator"
FORM = "Write name:role:file or name:role:$VARIABLE, comma-separated; a role is 'read' or 'act'."


@dataclass(frozen=True)
class Token:
    """A secret, its name and its role."""

    name: str
    role: Role
    secret: str = field(repr=False)


def read_tokens(
    settings: ServeSettings, base: Path, environment: Mapping[str, str] | None = None
) -> list[Token]:
    """All tokens of the settings; none are needed on loopback. Unsafe settings are refused."""
    variables = os.environ if environment is None else environment
    found = [
        _token(said.strip(), base, variables) for said in settings.tokens.split(",") if said.strip()
    ]
    if settings.token_file:
        found.append(Token(OPERATOR, "act", _secret_in(base / settings.token_file)))
    for kind, values in {
        "name": [one.name for one in found],
        "secret": [one.secret for one in found],
    }.items():
        if len(set(values)) < len(values):
            raise DeclarationError(
                f"two tokens have the same {kind}. The token of serve.token_file has the name "
                f"'{OPERATOR}'; give each its own {kind}."
            )
    _refuse_unsafe(settings, found)
    return found


def _refuse_unsafe(settings: ServeSettings, found: list[Token]) -> None:
    if settings.user_header and not Proxies(settings.trusted_proxies):
        raise DeclarationError(
            "serve.user_header needs a trusted proxy. Add the address of the proxy to "
            "serve.trusted_proxies."
        )
    acting = any(one.role == "act" for one in found)
    if settings.acts == "yes" and not (acting or (settings.user_header and _users_act(settings))):
        raise DeclarationError(
            "serve.acts = 'yes' needs a token with the role 'act', also on loopback. Set "
            "serve.token_file (a missing file is created with a random token) or serve.tokens, or "
            "serve.user_role = 'act' with a proxy that sends user names."
        )
    known = found or settings.user_header or settings.behind_proxy == "yes"
    if not is_loopback(settings.address) and not known:
        raise DeclarationError(
            f"serving on {settings.address} needs a token. Set serve.token_file (a missing file is "
            "created with a random token). With a proxy that logs users in, set "
            "serve.user_header or serve.behind_proxy = 'yes'."
        )


def _users_act(settings: ServeSettings) -> bool:
    return settings.user_role == "act"


def _token(said: str, base: Path, variables: Mapping[str, str]) -> Token:
    name, _, rest = said.partition(":")
    role, _, place = rest.partition(":")
    if not NAME.fullmatch(name) or role not in ROLES or not place:
        raise DeclarationError(f"serve.tokens: {said!r} is not a token. {FORM}")
    if not place.startswith("$"):
        return Token(name, role, _secret_in(base / place))
    secret = variables.get(place[1:], "").strip()
    if not secret:
        raise DeclarationError(
            f"serve.tokens: the environment variable {place} of '{name}' is not set."
        )
    return Token(name, role, _long_enough(secret, f"environment variable {place}"))


def _secret_in(path: Path) -> str:
    if not is_there(path):
        create_private(path, f"{secrets.token_urlsafe(32)}\n")
    if not is_private(path):
        raise DeclarationError(
            f"{path} contains a token, and other users can read or write it. Run: chmod 600 {path}"
        )
    try:
        return _long_enough(read_bytes(path).decode("ascii").strip(), str(path))
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: a token may have only ASCII characters.") from None


def _long_enough(secret: str, where: str) -> str:
    if len(secret) < LEAST_CHARACTERS:
        raise DeclarationError(
            f"{where}: the token is too short, it needs at least {LEAST_CHARACTERS} characters."
        )
    return secret


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"

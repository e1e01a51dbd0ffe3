"""Who reads and who acts: tokens with names and roles, sessions that end, a proxy that names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapeline.errors import DeclarationError
from tapeline.serve.door import ANYBODY, COOKIE, SESSION_SECONDS, Door, Reader
from tapeline.serve.tokens import Token, read_tokens
from tapeline.settings import ServeSettings
from tests.support.brokerage import served

SECRET = "s" * 40
ACT = {"act": "dismiss", "positions": ["raw_trades:1:1"], "table": "trades"}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, str]]]:
    """A server on which Ada acts and a guest reads, with their tokens."""
    monkeypatch.setenv("TAPELINE_SERVE_ACTS", "yes")
    monkeypatch.setenv("TAPELINE_SERVE_TOKENS", "ada:act:ada.token, guest:read:$GUEST")
    monkeypatch.setenv("GUEST", SECRET)
    with served(tmp_path) as address:
        yield address, {"ada": (tmp_path / "ada.token").read_text().strip(), "guest": SECRET}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_each_token_has_its_name_and_its_role(shared: tuple[str, dict[str, str]]) -> None:
    address, tokens = shared
    for name, role in {"ada": "act", "guest": "read"}.items():
        found = httpx.get(f"{address}/api/me", headers=bearer(tokens[name])).json()
        assert (found["name"], found["role"]) == (name, role)
    url = f"{address}/api/quarantine/acts"
    refused = httpx.post(url, json=ACT, headers=bearer(tokens["guest"]))
    assert refused.status_code == 403
    assert "'guest' can only read" in refused.text
    done = httpx.post(url, json=ACT, headers=bearer(tokens["ada"]))
    assert done.json() == {"recorded": 0, "asked": 1}
    assert httpx.post(url, json=ACT).status_code == 401


def test_a_session_ends_on_the_server(shared: tuple[str, dict[str, str]]) -> None:
    """A cookie that somebody kept is worth nothing after its owner has logged out."""
    address, tokens = shared
    with httpx.Client(base_url=address) as browser:
        browser.post("/login", data={"token": tokens["guest"]})
        kept = {"cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert httpx.get(f"{address}/api/me", headers=kept).json()["session"] is True
        other = httpx.post(f"{address}/login", data={"token": tokens["guest"]}).cookies[COOKIE]
        foreign = {"origin": "https://evil.example"}
        assert browser.post("/logout", headers=foreign).status_code == 403
        assert browser.post("/logout").headers["location"] == "/login"
        assert httpx.get(f"{address}/api/me", headers=kept).status_code == 401
        still = {"cookie": f"{COOKIE}={other}"}
        assert httpx.get(f"{address}/api/me", headers=still).status_code == 200
        assert httpx.post(
            f"{address}/api/quarantine/acts", json=ACT, headers=still
        ).status_code == 403  # fmt: skip


def test_a_session_is_a_secret_of_its_own_and_expires() -> None:
    now = 0.0
    door = Door([Token("ada", "act", SECRET)], ServeSettings(), lambda: now)
    ada = door.reader_with(SECRET, "192.0.2.1")
    assert ada == Reader("ada", "act")
    one, other = door.begin_session(ada), door.begin_session(ada)
    assert one != other
    cookie = {"headers": [(b"cookie", f"{COOKIE}={one}".encode())]}
    assert door.reader_of(cookie, "192.0.2.1", "192.0.2.1") == Reader("ada", "act", session=True)
    now = SESSION_SECONDS - 1.0
    assert door.reader_of(cookie, "192.0.2.1", "192.0.2.1") is not None
    now = float(SESSION_SECONDS)
    assert door.reader_of(cookie, "192.0.2.1", "192.0.2.1") is None


def test_a_restart_ends_all_sessions(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    words = ("--token-file", str(token_file))
    with served(tmp_path, *words) as address:
        answer = httpx.post(f"{address}/login", data={"token": token_file.read_text().strip()})
        kept = {"cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
        assert httpx.get(f"{address}/api/me", headers=kept).status_code == 200
    with served(tmp_path, *words) as address:
        assert httpx.get(f"{address}/api/me", headers=kept).status_code == 401


@pytest.mark.parametrize(
    ("trusted", "said", "name"),
    [
        ("127.0.0.1", [("x-user", "ada@example")], "ada@example"),
        ("127.0.0.1", [], None),
        ("127.0.0.1", [("x-user", "ada"), ("x-user", "eve")], None),
        ("127.0.0.1", [("x-user", "a\x9bda")], None),
        ("10.0.0.7", [("x-user", "ada")], None),
        ("10.0.0.7", [("x-user", "ada"), ("x-forwarded-for", "10.0.0.7")], None),
    ],
    ids=["named", "nobody", "two names", "odd name", "another address", "claimed address"],
)
def test_a_proxy_that_is_trusted_names_the_reader(
    trusted: str,
    said: list[tuple[str, str]],
    name: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_TRUSTED_PROXIES", trusted)
    monkeypatch.setenv("TAPELINE_SERVE_USER_HEADER", "X-User")
    monkeypatch.setenv("TAPELINE_SERVE_USER_ROLE", "act")
    monkeypatch.setenv("TAPELINE_SERVE_ACTS", "yes")
    with served(tmp_path) as address:
        headers = [(key, value.encode()) for key, value in said]
        answer = httpx.get(f"{address}/api/me", headers=headers)
        assert answer.status_code == (200 if name else 401)
        if name:
            found = answer.json()
            assert (found["name"], found["role"], found["acts"]) == (name, "act", True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tokens": "ada"}, "is not a token"),
        ({"tokens": "ada:write:file"}, "is not a token"),
        ({"tokens": "a@b:act:file"}, "is not a token"),
        ({"tokens": "ada:act:$NOT_SET"}, "is not set"),
        ({"tokens": "ada:act:$SHORT"}, "at least 16"),
        ({"tokens": "ada:act:one, ada:read:two"}, "the same name"),
        ({"tokens": "operator:read:one", "token_file": "two"}, "the same name"),
        ({"tokens": "ada:act:$LONG, guest:read:$LONG"}, "the same secret"),
        ({"tokens": "guest:read:one", "acts": "yes"}, "role 'act'"),
        ({"tokens": "ada:act:loose"}, "chmod 600"),
        ({"user_header": "X-User"}, "serve.trusted_proxies"),
        ({"user_header": "X-User", "trusted_proxies": "10.0.0.7", "acts": "yes"}, "role 'act'"),
    ],
)
def test_what_is_not_safe_is_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "loose").write_text(SECRET)
    (tmp_path / "loose").chmod(0o640)
    with pytest.raises(DeclarationError) as refused:
        read_tokens(ServeSettings(**settings), tmp_path, {"LONG": SECRET, "SHORT": "x"})
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_no_secret_is_shown_where_a_token_is() -> None:
    assert SECRET not in repr(Token("ada", "act", SECRET))


def test_on_loopback_without_a_token_anybody_reads() -> None:
    assert Door([], ServeSettings()).reader_of({"headers": []}, "127.0.0.1", "127.0.0.1") == ANYBODY

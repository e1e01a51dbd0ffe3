"""Who may ask, from where, how much and how often; and what goes out with every answer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapeline.errors import DeclarationError
from tapeline.serve.guard import Rate, read_token
from tapeline.settings import ServeSettings
from tests.brokerage import COMMAND, Brokerage


@pytest.fixture(scope="module")
def guarded(brokerage: Brokerage) -> Any:
    token_file = brokerage.folder / "token"
    with brokerage.served("--token-file", str(token_file)) as address:
        yield address, token_file.read_text().strip()


def test_every_answer_carries_the_policy(address: str) -> None:
    for path in ("/", "/trade_summary", "/api/pipeline", "/nowhere", "/static/tapeline.js"):
        headers = httpx.get(f"{address}{path}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_another_name_for_this_machine_is_refused(address: str) -> None:
    answer = httpx.get(f"{address}/api/pipeline", headers={"host": "evil.example"})
    assert answer.status_code == 421


def test_limits_of_size(address: str) -> None:
    assert httpx.get(f"{address}/api/read/trades?where={'x' * 5000}").status_code == 414
    assert httpx.post(f"{address}/login", content=b"x" * 70_000).status_code == 413


def test_nothing_can_be_changed_unless_it_is_allowed(address: str) -> None:
    body = {"act": "dismiss", "positions": ["raw_trades:1:1"], "table": "trades", "who": "me"}
    assert httpx.post(f"{address}/api/quarantine/acts", json=body).status_code in (404, 405)


def test_without_the_token_nobody_reads(guarded: tuple[str, str]) -> None:
    address, token = guarded
    assert httpx.get(f"{address}/api/pipeline").status_code == 401
    assert httpx.get(f"{address}/metrics").status_code == 401
    assert httpx.get(f"{address}/trade_summary").headers["location"] == "/login"
    wrong = {"authorization": "Bearer wrong"}
    assert httpx.get(f"{address}/api/pipeline", headers=wrong).status_code == 401
    right = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"{address}/api/pipeline", headers=right).status_code == 200
    assert httpx.get(f"{address}/api/pipeline?token={token}").status_code == 401  # never in a URL


def test_a_browser_gives_the_token_once_and_gets_a_session(guarded: tuple[str, str]) -> None:
    address, token = guarded
    with httpx.Client(base_url=address) as browser:
        assert "not the token" in browser.post(
            "/login", data={"token": "wrong"}, follow_redirects=True
        ).text  # fmt: skip
        answer = browser.post("/login", data={"token": token})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert token.lower() not in cookie
        assert browser.get("/api/pipeline").status_code == 200
    foreign = httpx.post(
        f"{address}/login", data={"token": token}, headers={"origin": "https://evil.example"}
    )
    assert foreign.status_code == 403


def test_acts_from_the_page_are_recorded_and_need_the_token(
    fresh: Brokerage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.feed("not JSON", "not JSON either")
    monkeypatch.setenv("TAPELINE_SERVE_ACTS", "yes")
    token_file = fresh.folder / "token"
    with fresh.served("--token-file", str(token_file)) as address:
        headers = {"authorization": f"Bearer {token_file.read_text().strip()}"}
        found = httpx.get(f"{address}/api/quarantine", headers=headers).json()
        positions = [row["position"] for row in found["records"]]
        body = {"act": "dismiss", "positions": positions, "table": "trades", "who": "Ada"}
        url = f"{address}/api/quarantine/acts"
        assert httpx.post(url, json=body).status_code == 401
        foreign = {**headers, "origin": "https://evil.example"}
        assert httpx.post(url, json=body, headers=foreign).status_code == 403
        assert httpx.post(url, json=body, headers=headers).json() == {"recorded": 2, "asked": 2}
        fresh.trial.flow.advance()
        assert httpx.get(f"{address}/api/quarantine", headers=headers).json()["count"] == 0


def test_beyond_loopback_a_token_or_a_proxy_is_needed(brokerage: Brokerage, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--project", str(brokerage.folder), "--address", "0.0.0.0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "serve.token_file" in done.stderr
    anywhere = ServeSettings(address="0.0.0.0")
    with pytest.raises(DeclarationError, match="needs a token"):
        read_token(anywhere, tmp_path)
    with pytest.raises(DeclarationError, match="need a token"):
        read_token(ServeSettings(acts="yes"), tmp_path)
    made = read_token(ServeSettings(address="0.0.0.0", token_file="t"), tmp_path)
    assert len(made or "") > 40
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0
    assert read_token(ServeSettings(address="0.0.0.0", behind_proxy="yes"), tmp_path) is None


def test_a_bucket_of_requests_fills_again() -> None:
    rate = Rate(60)
    assert [rate.allows("a", now=0.0) for _ in range(61)] == [True] * 60 + [False]
    assert rate.allows("b", now=0.0)
    assert rate.allows("a", now=1.0)
    assert not rate.allows("a", now=1.0)


def test_the_log_holds_no_client_and_no_question(brokerage: Brokerage, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr, brokerage.served(stderr=stderr) as address:
        httpx.get(f"{address}/api/read/trades", params={"where": "client=C000001"})
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert [(one["route"], one["status"]) for one in lines] == [("/api/read/{name}", 200)]
    assert "C000001" not in log.read_text()
    assert "127.0.0.1" not in log.read_text()

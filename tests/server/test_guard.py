"""Who may ask, from where, how much and how often; and what goes out with every answer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapeline.errors import DeclarationError
from tapeline.serve.proxies import Proxies
from tapeline.serve.rate import Rate
from tapeline.serve.tokens import read_tokens
from tapeline.settings import ServeSettings
from tests.support.brokerage import COMMAND, Brokerage, served


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


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_elsewhere_gets_no_data(site: str, address: str) -> None:
    """Nor one on another port of this machine; links to our pages work."""
    foreign = {"sec-fetch-site": site}
    for path in ("/api/pipeline", "/api/read/trades", "/api/events", "/metrics"):
        assert httpx.get(f"{address}{path}", headers=foreign).status_code == 403
    assert httpx.get(f"{address}/trade_summary", headers=foreign).status_code == 200
    for own in ({}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert httpx.get(f"{address}/api/pipeline", headers=own).status_code == 200


def test_what_a_page_elsewhere_asks_costs_its_reader_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_REQUESTS_PER_MINUTE", "5")
    foreign = {"sec-fetch-site": "cross-site"}
    with served(tmp_path) as address:
        for _ in range(10):
            assert httpx.get(f"{address}/api/pipeline", headers=foreign).status_code == 403
        assert httpx.get(f"{address}/api/pipeline").status_code == 200


def test_limits_of_size(address: str) -> None:
    assert httpx.get(f"{address}/api/read/trades?where={'x' * 5000}").status_code == 414
    assert httpx.post(f"{address}/login", content=b"x" * 70_000).status_code == 413


def test_nothing_can_be_changed_unless_it_is_allowed(address: str) -> None:
    body = {"act": "dismiss", "positions": ["raw_trades:1:1"], "table": "trades"}
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
        assert "Unknown token" in browser.post(
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


@pytest.mark.parametrize("origin", ["null", "http://[", "https://evil.example", "http://"])
def test_a_page_elsewhere_logs_nobody_in(guarded: tuple[str, str], origin: str) -> None:
    address, token = guarded
    answer = httpx.post(f"{address}/login", data={"token": token}, headers={"origin": origin})
    assert answer.status_code == 403


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
        body = {"act": "dismiss", "positions": positions, "table": "trades"}
        url = f"{address}/api/quarantine/acts"
        assert httpx.post(url, json=body).status_code == 401
        foreign = {**headers, "origin": "https://evil.example"}
        assert httpx.post(url, json=body, headers=foreign).status_code == 403
        claimed = httpx.post(url, json={**body, "who": "somebody else"}, headers=headers)
        assert claimed.status_code == 422
        assert httpx.post(url, json=body, headers=headers).json() == {"recorded": 2, "asked": 2}
        shown = httpx.get(f"{address}/api/quarantine/{positions[0]}", headers=headers).json()
        assert [one["who"] for one in shown["acts"]] == ["operator"]
        fresh.trial.advance()
        assert httpx.get(f"{address}/api/quarantine", headers=headers).json()["count"] == 0


def test_beyond_loopback_a_token_or_a_proxy_is_needed(brokerage: Brokerage, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "tapeline.trades", "--project", str(brokerage.folder),
         "--address", "0.0.0.0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "serve.token_file" in done.stderr
    anywhere = ServeSettings(address="0.0.0.0")
    with pytest.raises(DeclarationError, match="needs a token"):
        read_tokens(anywhere, tmp_path)
    with pytest.raises(DeclarationError, match="needs a token"):
        read_tokens(ServeSettings(acts="yes"), tmp_path)
    (made,) = read_tokens(ServeSettings(address="0.0.0.0", token_file="t"), tmp_path)
    assert (len(made.secret) > 40, made.name, made.role) == (True, "operator", "act")
    assert (tmp_path / "t").stat().st_mode & 0o077 == 0
    assert read_tokens(ServeSettings(address="0.0.0.0", behind_proxy="yes"), tmp_path) == []


def test_a_bucket_of_requests_fills_again() -> None:
    rate = Rate(60)
    assert [rate.allows("a", now=0.0) for _ in range(61)] == [True] * 60 + [False]
    assert rate.allows("b", now=0.0)
    assert rate.allows("a", now=1.0)
    assert not rate.allows("a", now=1.0)


def test_what_a_client_says_of_its_address_is_believed_from_named_proxies_only() -> None:
    said = {"x-forwarded-for": "198.51.100.9, 203.0.113.5, 10.0.0.8", "x-forwarded-proto": "https"}
    nobody, some = Proxies(""), Proxies("127.0.0.1, 10.0.0.0/24")
    assert nobody.client_of("127.0.0.1", said) == "127.0.0.1"
    assert some.client_of("192.0.2.1", said) == "192.0.2.1"
    assert some.client_of("127.0.0.1", said) == "203.0.113.5"  # before it is the client's own word
    assert some.client_of("::ffff:10.0.0.7", {}) == "::ffff:10.0.0.7"
    assert some.client_of("10.0.0.7", {"x-forwarded-for": "203.0.113.5, nonsense"}) == "10.0.0.7"
    assert (some.secure("10.0.0.7", said), some.secure("192.0.2.1", said)) == (True, False)
    assert some.trust("::ffff:10.0.0.7")
    with pytest.raises(DeclarationError, match=r"serve\.trusted_proxies"):
        Proxies("proxy.example")


def test_wrong_tokens_are_counted_wherever_they_come_from(tmp_path: Path) -> None:
    """By the address that we see, not by one that is claimed; log-ins and requests together."""
    token_file = tmp_path / "token"
    with served(tmp_path, "--token-file", str(token_file)) as address:
        right = {"authorization": f"Bearer {token_file.read_text().strip()}"}
        found = []
        for number in range(12):
            claimed = {"x-forwarded-for": f"203.0.113.{number}"}
            if number % 2:
                answer = httpx.post(f"{address}/login", data={"token": "x"}, headers=claimed)
            else:
                wrong = {**claimed, "authorization": "Bearer wrong"}
                answer = httpx.get(f"{address}/api/pipeline", headers=wrong)
            found.append(answer.status_code)
        assert found[:10] == [401, 303] * 5
        assert found[10:] == [429, 429]
        assert httpx.get(f"{address}/api/pipeline", headers=right).status_code == 429
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_a_named_proxy_tells_its_clients_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_TRUSTED_PROXIES", "127.0.0.1")
    token_file = tmp_path / "token"
    with served(tmp_path, "--token-file", str(token_file)) as address:
        right = {"authorization": f"Bearer {token_file.read_text().strip()}"}
        for _ in range(12):
            wrong = {"authorization": "Bearer wrong", "x-forwarded-for": "203.0.113.1"}
            last = httpx.get(f"{address}/api/pipeline", headers=wrong)
        assert last.status_code == 429
        other = {**right, "x-forwarded-for": "203.0.113.2"}
        assert httpx.get(f"{address}/api/pipeline", headers=other).status_code == 200


def test_the_log_holds_no_client_and_no_question(brokerage: Brokerage, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr, brokerage.served(stderr=stderr) as address:
        httpx.get(f"{address}/api/read/trades", params={"where": "client=C000001"})
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert [(one["route"], one["status"]) for one in lines] == [("/api/read/{name}", 200)]
    assert "C000001" not in log.read_text()
    assert "127.0.0.1" not in log.read_text()

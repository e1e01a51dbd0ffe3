"""The API against its own description: whatever is sent, the server does not fail."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.support.brokerage import Brokerage

REALLY = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def test_nothing_that_is_sent_makes_the_server_fail(
    brokerage: Brokerage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_REQUESTS_PER_MINUTE", "1000000")
    answers: dict[int, int] = {}
    with brokerage.served() as address:
        schema = schemathesis.openapi.from_url(f"{address}/api/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.path == "/api/events":
                continue  # it never ends

            @REALLY
            @given(case=operation.as_strategy())
            def never_fails(case: schemathesis.Case) -> None:
                status = case.call(timeout=30).status_code
                answers[status] = answers.get(status, 0) + 1
                assert status < 500, case.as_curl_command()

            never_fails()
    assert answers[200] > 10
    assert answers.get(400, 0) + answers.get(404, 0) + answers.get(422, 0) > 10
    assert 429 not in answers

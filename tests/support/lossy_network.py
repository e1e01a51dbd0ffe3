"""A network that loses packets: `python -m tests.support.lossy_network FOLDER`.

It runs in a network namespace of its own. Broker, producer, flow and sink live here, on a loopback
of their own, and the kernel drops 5 of 100 packets to and from the broker. What was delivered goes
to FOLDER/delivered.json; whoever started this compares it, and the books, with the truth.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tapeline.broker import Broker
from tests.support.kafka import consumed, produced
from tests.support.orders import expected, found, order, orders_plan, stand
from tests.support.waiting import wait_for

LOST_OF_HUNDRED = 5
MESSAGES, PORTIONS = 3_000, 10
PATIENCE_SECONDS = 300.0
# Not on every user's path.
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
LOSS = """
table inet tapeline {{
    chain arriving {{
        type filter hook input priority 0;
        tcp dport {port} numgen random mod 100 < {lost} counter drop
        tcp sport {port} numgen random mod 100 < {lost} counter drop
    }}
}}
"""


def refuse_without_loss() -> list[str]:
    """How a namespace is entered; skip where there is none, fail where nft must be and is not."""
    if shutil.which("nft", path=PLACES) is None or shutil.which("ip", path=PLACES) is None:
        missing = "there is no nft or ip: run 'bash scripts/network.sh'"
        if os.environ.get("REQUIRE_KAFKA"):
            pytest.fail(missing)
        pytest.skip(missing)
    enter = ["unshare", "--net", "--"]
    if os.geteuid() != 0:
        enter.insert(1, "--map-root-user")
    trial = [*enter, "nft", LOSS.format(port=9, lost=LOST_OF_HUNDRED)]
    tried = subprocess.run(trial, capture_output=True, check=False, env=environment())
    if tried.returncode:
        pytest.skip("this user may not make a namespace of the network: try as root")
    return enter


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": PLACES}


def lose_packets(port: int) -> None:
    subprocess.run(["nft", LOSS.format(port=port, lost=LOST_OF_HUNDRED)], check=True)


def lost_packets() -> int:
    said = subprocess.run(
        ["nft", "--json", "list", "chain", "inet", "tapeline", "arriving"],
        capture_output=True, check=True,
    )  # fmt: skip
    rules = [one["rule"]["expr"] for one in json.loads(said.stdout)["nftables"] if "rule" in one]
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)


def main(folder: Path) -> None:
    # Packets as large as those of a real network: loopback's own hold all of a fetch.
    subprocess.run(["ip", "link", "set", "lo", "up", "mtu", "1500"], check=True)
    broker = Broker(folder / "broker")
    broker.start()
    try:
        broker.make_topic("orders", 2)
        broker.make_topic("changes", 1)
        lose_packets(int(broker.bootstrap_servers.rpartition(":")[2]))
        run(broker, folder)
        delivered = {"lost_packets": lost_packets(), "messages": consumed(broker, "changes")[0]}
    finally:
        broker.stop()
    (folder / "delivered.json").write_text(json.dumps(delivered))


def run(broker: Broker, folder: Path) -> None:
    """Messages come while the flow runs, and all of them come through to the other topic."""
    here = stand(orders_plan("orders", folder, sink="changes"), folder, broker)
    each = MESSAGES // PORTIONS
    with here.running():
        for sent in range(each, MESSAGES + each, each):
            produced(broker, "orders", map(order, range(sent - each, sent)))
            # A batch for each, so that many transactions leave.
            wait_for(lambda n=sent: found(here.books) == expected(range(n)), PATIENCE_SECONDS)
        wait_for(lambda: here.status().sinks["changes"].lag_batches == 0, PATIENCE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

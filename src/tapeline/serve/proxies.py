"""Trusted proxies: only their headers about a client are used."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from tapeline.errors import DeclarationError

FORWARDED_FOR = "x-forwarded-for"
FORWARDED_PROTOCOL = "x-forwarded-proto"


class Proxies:
    """Addresses and networks, comma-separated, such as '10.0.0.7, 192.168.1.0/24'."""

    def __init__(self, said: str) -> None:
        try:
            self._networks = [
                ipaddress.ip_network(one.strip()) for one in said.split(",") if one.strip()
            ]
        except ValueError as error:
            raise DeclarationError(
                f"serve.trusted_proxies: {error}. Name addresses or networks, comma-separated, "
                "such as 10.0.0.7 or 192.168.1.0/24."
            ) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trust(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def client_of(self, peer: str, headers: Mapping[str, str]) -> str:
        """The address of the client: the peer, or the one that a trusted proxy reports.

        Each proxy appends the address it sees. So the last address that is not a trusted proxy is
        the client; the client itself may have written anything before it.
        """
        if not self.trust(peer):
            return peer
        for said in reversed(headers.get(FORWARDED_FOR, "").split(",")):
            address = said.strip()
            if not _is_address(address):
                return peer
            if not self.trust(address):
                return address
        return peer

    def secure(self, peer: str, headers: Mapping[str, str]) -> bool:
        """Whether a trusted proxy received the request over TLS."""
        return self.trust(peer) and headers.get(FORWARDED_PROTOCOL, "").strip() == "https"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

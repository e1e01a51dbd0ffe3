#!/usr/bin/env bash
# Installs nftables and ip for the test of a network that loses packets; it does so in a namespace of its own.
set -uo pipefail
source "${BASH_SOURCE[0]%/*}/packages.sh"

# Where they are is not on every user's path.
PATH=$PATH:/usr/sbin:/sbin
command -v nft >/dev/null && command -v ip >/dev/null && exit 0
install_packages nftables "the test of lost packets" "nftables iproute2" "nftables iproute"

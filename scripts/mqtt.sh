#!/usr/bin/env bash
# Installs Mosquitto, an MQTT broker, for the test of a source of one's own. It starts brokers of its own; none is set up here.
set -uo pipefail
source "${BASH_SOURCE[0]%/*}/packages.sh"

PATH=$PATH:/usr/sbin:/sbin
command -v mosquitto >/dev/null && exit 0
install_packages Mosquitto "the tests of a source that is a queue" mosquitto mosquitto

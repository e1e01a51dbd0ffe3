#!/usr/bin/env bash
# Installs Chromium for the tests of the pages.
set -uo pipefail
source "${BASH_SOURCE[0]%/*}/packages.sh"

command -v chromium >/dev/null || command -v chromium-browser >/dev/null && exit 0
install_packages Chromium "the tests of the pages" chromium chromium

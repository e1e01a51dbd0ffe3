#!/usr/bin/env bash
# Installs Chromium for the tests of the pages, where the system's package manager allows. Asks nothing and never
# fails: without it those tests are skipped and say so.
set -uo pipefail

command -v chromium >/dev/null || command -v chromium-browser >/dev/null && exit 0

as_root=()
if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); fi
fi
if command -v apt-get >/dev/null; then
    install=(apt-get install -y --no-install-recommends chromium)
elif command -v dnf >/dev/null; then
    install=(dnf install -y chromium)
else
    printf 'No Chromium: the tests of the pages are skipped. Install it and put chromium on PATH.\n'
    exit 0
fi
if ((EUID != 0)) && ((${#as_root[@]} == 0)); then
    printf 'No Chromium: the tests of the pages are skipped. To run them: sudo %s\n' "${install[*]}"
    exit 0
fi
printf 'Installing Chromium for the tests of the pages: %s\n' "${install[*]}"
if [[ "${install[0]}" == apt-get ]]; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" >/dev/null ||
    printf 'Chromium could not be installed: the tests of the pages are skipped.\n'
exit 0

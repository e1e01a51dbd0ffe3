#!/usr/bin/env bash
# Installs PostgreSQL for the tests of pulls, where the system's package manager allows. Asks nothing and never
# fails: without it those tests are skipped and say so. The tests start servers of their own; none is set up here.
set -uo pipefail

command -v initdb >/dev/null && exit 0
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && exit 0

as_root=()
if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); fi
fi
if command -v apt-get >/dev/null; then
    install=(apt-get install -y --no-install-recommends postgresql)
elif command -v dnf >/dev/null; then
    install=(dnf install -y postgresql-server)
else
    printf 'No PostgreSQL: the tests of pulls from it are skipped. Install it and put initdb on PATH.\n'
    exit 0
fi
if ((EUID != 0)) && ((${#as_root[@]} == 0)); then
    printf 'No PostgreSQL: the tests of pulls from it are skipped. To run them: sudo %s\n' "${install[*]}"
    exit 0
fi
printf 'Installing PostgreSQL for the tests of pulls: %s\n' "${install[*]}"
if [[ "${install[0]}" == apt-get ]]; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    # Debian would make a cluster and start it: a server that nobody asked for.
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        "${as_root[@]}" mkdir -p /etc/postgresql-common
        printf 'create_main_cluster = false\n' |
            "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 "${install[@]}" >/dev/null ||
    printf 'PostgreSQL could not be installed: the tests of pulls from it are skipped.\n'
exit 0

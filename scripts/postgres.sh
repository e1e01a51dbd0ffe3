#!/usr/bin/env bash
# Installs PostgreSQL for the tests of pulls. They start servers of their own; none is set up here.
set -uo pipefail
source "${BASH_SOURCE[0]%/*}/packages.sh"

command -v initdb >/dev/null && exit 0
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && exit 0

# Debian would make a cluster and start it: a server that nobody asked for.
make_no_cluster() {
    [[ -e /etc/postgresql-common/createcluster.conf ]] && return
    become_root mkdir -p /etc/postgresql-common
    printf 'create_main_cluster = false\n' | become_root tee /etc/postgresql-common/createcluster.conf >/dev/null
}
install_packages PostgreSQL "the tests of pulls from it" postgresql postgresql-server make_no_cluster

#!/usr/bin/env bash
# Sourced by the scripts that install what some tests need, where the system's package manager allows. Asks nothing and
# never fails: without it those tests are skipped and say so.
#
#   install_packages WHAT "TESTS" "APT PACKAGES" "DNF PACKAGES" [a function to call before apt installs]

become_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }

install_packages() {
    local what=$1 tests=$2 prepare=${5:-true}
    local -a install
    if command -v apt-get >/dev/null; then
        read -ra install <<<"apt-get install -y --no-install-recommends $3"
    elif command -v dnf >/dev/null; then
        read -ra install <<<"dnf install -y $4"
    else
        printf 'No %s: %s are skipped. Install it with the package manager of this system.\n' "$what" "$tests"
        return 0
    fi
    if ! become_root true 2>/dev/null; then
        printf 'No %s: %s are skipped. To run them: sudo %s\n' "$what" "$tests" "${install[*]}"
        return 0
    fi
    printf 'Installing %s for %s: %s\n' "$what" "$tests" "${install[*]}"
    if [[ "${install[0]}" == apt-get ]]; then
        become_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        "$prepare"
    fi
    become_root env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 "${install[@]}" >/dev/null ||
        printf '%s could not be installed: %s are skipped.\n' "$what" "$tests"
    return 0
}

#!/usr/bin/env bash
# Makes everything Tapeline needs, inside the repository: .venv (Python packages) and .jars (Spark's jars; those of the
# broker for development in .jars/broker).
# Asks nothing. Safe to repeat: when nothing changed it returns at once.
# With --pin-jars (make lock-jars) it fetches the jars of ivy.xml and writes jars.sha256 in place of checking it.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"
stamps=.venv/.stamps
venv_python=.venv/bin/python

say() { printf '%s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$@" >&2; exit 1; }

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

# --- what is wanted, as text to compare with the stamps -----------------------------------------------

packages_wanted() { say "$root"; sha256 requirements.lock; }
project_wanted() { say "$root"; sha256 pyproject.toml; }

is_stamped() { [[ -f "$stamps/$1" && "$(<"$stamps/$1")" == "$2" ]]; }
stamp() { mkdir -p "$stamps" && printf '%s\n' "$2" >"$stamps/$1"; }

# --- Python ---------------------------------------------------------------------------------------------

find_python() {    # the first new enough; pyenv's shims exist for versions that are not active, so try each
    local name
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            say "$name"
            return
        fi
    done
}

check_python() {
    python="$(find_python)"
    [[ -z "$python" ]] || return 0
    local found="none" install="install Python 3.11 or newer and put python3 on PATH"
    if command -v python3 >/dev/null; then found="$(python3 --version 2>&1 || true)"; fi
    if command -v apt-get >/dev/null; then install="sudo apt-get install -y python3 python3-venv"
    elif command -v dnf >/dev/null; then install="sudo dnf install -y python3.12"
    elif command -v brew >/dev/null; then install="brew install python@3.12"
    fi
    fail "Tapeline needs Python 3.11 or newer with venv; found: $found. Run this, then repeat:" \
        "    $install"
}

# --- the four parts -------------------------------------------------------------------------------------

pip_install() {
    "$venv_python" -m pip install --quiet --no-input --disable-pip-version-check --progress-bar off "$@"
}

from_lock() {    # the lines of the lock that pin the named packages, hashes included
    local names="$1"
    awk -v names=" $names " '
        /^[A-Za-z0-9]/ { split($1, part, "=="); wanted = index(names, " " part[1] " ") > 0 }
        wanted && !/^ *#/ { print }
    ' requirements.lock
}

install_packages() {
    local build_tools
    # a venv that was moved or made by another Python is made again
    if [[ -e .venv ]] && ! { [[ -f "$stamps/root" ]] && [[ "$(<"$stamps/root")" == "$root" ]] &&
        "$venv_python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }; then
        rm -rf .venv
    fi
    [[ -e .venv ]] || "$python" -m venv .venv
    stamp root "$root"
    # PySpark is built here from source: what builds it comes from the lock first, then nothing is fetched unchecked
    build_tools="$(mktemp)"
    from_lock "pip setuptools wheel packaging" >"$build_tools"
    pip_install --require-hashes --no-deps -r "$build_tools"
    rm -f "$build_tools"
    pip_install --require-hashes --no-build-isolation -r requirements.lock
}

# Jars are fetched, compared and put into .jars by the package's own command, as on any machine.
jars_ready() { "$venv_python" -m tapeline setup --check >/dev/null 2>&1; }
install_jars() { "$venv_python" -m tapeline setup; }

pin_jars() {
    "$venv_python" -c 'from tapeline.operate.setup import pin_jars; print(f"jars.sha256 lists {pin_jars()} jars.")'
}

# --- all of it ------------------------------------------------------------------------------------------

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER TAPELINE_JARS

if [[ "${1:-}" == --pin-jars ]]; then pin_jars; exit; fi

packages="$(packages_wanted)"
project="$(project_wanted)"

if is_stamped packages "$packages" && is_stamped project "$project" &&
    [[ -x "$venv_python" ]] && jars_ready; then
    say "Set-up is up to date."
    exit 0
fi

# one set-up at a time; whoever waited finds most of it done
if command -v flock >/dev/null; then exec 9<"$root" && flock 9; fi

say "[1/4] Python"
check_python

say "[2/4] Python packages, a Java among them (about two minutes the first time)"
if ! { is_stamped packages "$packages" && [[ -x "$venv_python" ]]; }; then
    install_packages
    stamp packages "$packages"
fi

say "[3/4] Tapeline itself"
if ! is_stamped project "$project"; then
    pip_install --no-deps --no-build-isolation -e .
    stamp project "$project"
fi

say "[4/4] Jars of Spark and of the broker, and the class archive (about two minutes the first time)"
install_jars

say "Set-up is done: .venv and .jars are ready."

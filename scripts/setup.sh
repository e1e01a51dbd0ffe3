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
list="$root/src/tapeline/jars.sha256"    # in the package, so that an installed one compares too

say() { printf '%s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$@" >&2; exit 1; }

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

# --- what is wanted, as text to compare with the stamps -----------------------------------------------

packages_wanted() { say "$root"; sha256 requirements.lock; }
project_wanted() { say "$root"; sha256 pyproject.toml; }
java_wanted() { say "$1"; readlink -f "$1" 2>/dev/null || true; }

is_stamped() { [[ -f "$stamps/$1" && "$(<"$stamps/$1")" == "$2" ]]; }
stamp() { mkdir -p "$stamps" && printf '%s\n' "$2" >"$stamps/$1"; }

# --- Java -----------------------------------------------------------------------------------------------

java_command() {    # the one Spark will take
    if [[ -n "${JAVA_HOME:-}" ]]; then say "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

is_java_17() {
    local version
    [[ -n "$1" && -x "$1" ]] || return 1
    version="$("$1" -version 2>&1)" || return 1
    [[ "$version" =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17))
}

java_install_command() {    # one line the user could type too; empty when we know none
    if command -v apt-get >/dev/null; then
        local package=openjdk-17-jre-headless
        # newer Debian and Ubuntu releases have 21 in its place
        apt-cache show "$package" >/dev/null 2>&1 || package=openjdk-21-jre-headless
        say "apt-get install -y --no-install-recommends $package"
    elif command -v dnf >/dev/null; then
        local package=java-17-openjdk-headless
        dnf -q list "$package" >/dev/null 2>&1 || package=java-21-openjdk-headless
        say "dnf install -y $package"
    elif command -v brew >/dev/null; then
        say "brew install openjdk@17"
    fi
}

install_java() {
    local as_root=() install=""
    if command -v brew >/dev/null && ! command -v apt-get >/dev/null && ! command -v dnf >/dev/null; then
        say "      installing Java 17: $(java_install_command)"
        brew install --quiet openjdk@17
        # where macOS looks for a user's Java; brew does not link it by itself
        mkdir -p "$HOME/Library/Java/JavaVirtualMachines"
        ln -sfn "$(brew --prefix openjdk@17)/libexec/openjdk.jdk" \
            "$HOME/Library/Java/JavaVirtualMachines/openjdk-17.jdk"
        return
    fi
    if ((EUID != 0)); then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 0
        as_root=(sudo -n)
    fi
    if command -v apt-get >/dev/null; then
        ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    fi
    install="$(java_install_command)"
    [[ -n "$install" ]] || return 0
    say "      installing Java: $install"
    # word splitting wanted: the command is our own text
    # shellcheck disable=SC2086
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive $install >/dev/null
}

check_java() {
    local found install
    found="$(java_command)"
    is_java_17 "$found" && return
    if [[ -n "${JAVA_HOME:-}" ]]; then
        fail "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer. Point it to one, or: unset JAVA_HOME"
    fi
    install_java
    hash -r
    is_java_17 "$(java_command)" && return
    install="$(java_install_command)"
    [[ "$install" == brew* || "$EUID" == 0 || -z "$install" ]] || install="sudo $install"
    fail "Spark needs Java 17 or newer; found: ${found:-none}. Run this, then repeat:" \
        "    ${install:-install a Java 17 runtime and put java on PATH}"
}

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

jars_verify() {    # every listed jar is there and unchanged, and no other jar is
    [[ -d "$1" ]] || return 1
    local listed present
    listed="$(grep -c . "$list")"
    present="$(find "$1" -name '*.jar' | grep -c . || true)"
    [[ "$listed" == "$present" ]] && (cd "$1" && sha256 -c --status "$list" 2>/dev/null)
}

retrieve_jars() {    # into folder $1; the broker's into a folder below it, since versions differ from Spark's
    local ivy
    ivy="$(find .venv/lib -path '*/pyspark/jars/ivy-*.jar' | head -n 1)"
    [[ -n "$ivy" ]] || fail "PySpark's Ivy is missing; run: rm -rf .venv && make setup"
    retrieve_conf "$ivy" spark "$1" "$1"
    retrieve_conf "$ivy" broker "$1" "$1/broker"
    rm -rf "$1/.ivy" "$1/ivy.log"
}

retrieve_conf() {    # with Ivy $1, the jars of configuration $2, by way of folder $3, into folder $4
    "$(java_command)" -jar "$1" -cache "$3/.ivy" -ivy ivy.xml -confs "$2" -types jar bundle \
        -retrieve "$4/[artifact]-[revision].[ext]" >"$3/ivy.log" 2>&1 ||
        { cat "$3/ivy.log" >&2; fail "the jars of ivy.xml could not be fetched (Ivy's words are above)"; }
}

fresh_folder() {    # beside .jars, so that moving it there is one rename; gone when the script ends
    fresh="$(mktemp -d .jars.XXXXXX)"
    trap 'rm -rf "$fresh"' EXIT
    chmod 755 "$fresh"
}

pin_jars() {
    fresh_folder
    retrieve_jars "$fresh"
    (cd "$fresh" && sha256 *.jar broker/*.jar) >"$list"
    rm -rf .jars
    mv "$fresh" .jars
    say "jars.sha256 lists $(grep -c . "$list") jars."
}

install_jars() {
    jars_verify .jars && return
    fresh_folder
    retrieve_jars "$fresh"
    jars_verify "$fresh" || {
        (cd "$fresh" && sha256 -c "$list") >&2 || true
        fail "the fetched jars are not the ones of jars.sha256; nothing was installed"
    }
    rm -rf .jars
    mv "$fresh" .jars
}

# --- all of it ------------------------------------------------------------------------------------------

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER

if [[ "${1:-}" == --pin-jars ]]; then pin_jars; exit; fi

java="$(java_command)"
packages="$(packages_wanted)"
project="$(project_wanted)"

if is_stamped packages "$packages" && is_stamped project "$project" &&
    [[ -n "$java" ]] && is_stamped java "$(java_wanted "$java")" && [[ -x "$venv_python" ]] && jars_verify .jars; then
    say "Set-up is up to date."
    exit 0
fi

# one set-up at a time; whoever waited finds most of it done
if command -v flock >/dev/null; then exec 9<"$root" && flock 9; fi

say "[1/4] Python and Java"
check_python
check_java

say "[2/4] Python packages (about two minutes the first time)"
if ! { is_stamped packages "$packages" && [[ -x "$venv_python" ]]; }; then
    install_packages
    stamp packages "$packages"
fi
stamp java "$(java_wanted "$(java_command)")"

say "[3/4] Tapeline itself"
if ! is_stamped project "$project"; then
    pip_install --no-deps --no-build-isolation -e .
    stamp project "$project"
fi

say "[4/4] Jars of Spark and of the broker (about a minute the first time)"
install_jars

say "Set-up is done: .venv and .jars are ready."

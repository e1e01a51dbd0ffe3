#!/usr/bin/env bash
# Usage: environments.sh LOCKS VENVS [pip options]. Makes an environment in VENVS for each lock in LOCKS, checked against
# it, so that none of these packages meets another's or ours. Safe to repeat.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER

locks=$1 venvs=$2
shift 2
for lock in "$locks"/*.lock; do
    name=$(basename "$lock" .lock)
    venv="$venvs/$name"
    if [[ -f "$venv/lock" ]] && cmp -s "$lock" "$venv/lock"; then continue; fi
    printf 'Installing %s into %s (minutes the first time)\n' "$name" "$venv"
    rm -rf "$venv"
    .venv/bin/python -m venv "$venv"
    # Our own pip, which the lock pins: the one that comes with Python takes a newer version of a package with extras
    # than the lock names, and then refuses it.
    .venv/bin/python -m pip --python "$venv/bin/python" install --quiet --no-input --disable-pip-version-check --progress-bar off \
        --require-hashes "$@" -r "$lock"
    cp "$lock" "$venv/lock"
done

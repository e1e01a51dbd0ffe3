#!/usr/bin/env bash
# Makes .venv-orchestrators: Airflow and Dagster, each in an environment of its own, so that neither meets the other's
# packages or ours. Checked against their locks; safe to repeat.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER

for name in airflow dagster; do
    lock="examples/orchestrators/$name.lock"
    venv=".venv-orchestrators/$name"
    if [[ -f "$venv/lock" ]] && cmp -s "$lock" "$venv/lock"; then continue; fi
    printf 'Installing %s into %s (minutes the first time)\n' "$name" "$venv"
    rm -rf "$venv"
    .venv/bin/python -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --progress-bar off \
        --require-hashes --only-binary :all: -r "$lock"
    cp "$lock" "$venv/lock"
done

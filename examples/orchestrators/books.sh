#!/bin/sh
# One run of a pipeline, as cron calls it. The line in the crontab:
#
#   MAILTO=books@localhost
#   BOOKS_TAPELINE=/path/to/.venv/bin/tapeline
#   */15 * * * *  /path/to/books.sh /path/to/coffee pipeline.py
#
# cron mails whatever a job prints, so this prints only when somebody must act, and ends with Tapeline's exit code. What
# was done stands in run.log in the project's folder. No flock around it: Tapeline refuses a second process by itself.
set -u

project=${1:?say the project\'s folder}
pipeline=${2:-pipeline.py}
errors=$(mktemp) || exit 1
trap 'rm -f "$errors"' EXIT

note() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" >>"$project/run.log"; }
fact() { printf '%s\n' "$done" | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"; }

done=$("${BOOKS_TAPELINE:-tapeline}" run "$pipeline" --once --json --project "$project" 2>"$errors")
code=$?
if [ "$code" -eq 0 ]; then
    note "$(fact records) records in $(fact batches) batches, last batch: $(fact batch)"
elif [ "$code" -eq 3 ] && grep -q ALREADY_RUNNING "$errors"; then
    # The run before is still at work. It, or the next one, takes what has come meanwhile.
    note "another process is at work; nothing to do"
    code=0
else
    case $code in
        2) who="the pipeline's author" ;;
        3) who="whoever runs it" ;;
        *) who="whoever reads this" ;;
    esac
    note "exit code $code"
    printf 'tapeline ended with exit code %s; %s must act.\n' "$code" "$who"
    cat "$errors"
fi
exit "$code"

#!/bin/bash
# Proves what SIGINT and SIGTERM do to `memplan train` and `profile`, from outside: tests/cli/stopped_runs.py.
#
#     MEMPLAN=build/memplan tests/cli/check_stop.sh [FILTER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "skip  check-stop: no python3"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
MEMPLAN=$(realpath "${MEMPLAN:-build/memplan}") OMP_WAIT_POLICY=passive exec python3 "$here/stopped_runs.py" "$@"

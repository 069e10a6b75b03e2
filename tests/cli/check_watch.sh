#!/bin/bash
# Proves `memplan watch` and the other live views from outside, on terminals of its own: tests/cli/live_views.py.
#
#     MEMPLAN=build/memplan tests/cli/check_watch.sh [FILTER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "skip  check-watch: no python3"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
MEMPLAN=$(realpath "${MEMPLAN:-build/memplan}") OMP_WAIT_POLICY=passive exec python3 "$here/live_views.py" "$@"

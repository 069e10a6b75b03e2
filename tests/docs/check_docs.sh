#!/bin/bash
# Runs every command that README.md and the pages of docs/ show and compares what they print with what the page says: run_pages.py.
#
#     MEMPLAN=build/memplan tests/docs/check_docs.sh [PAGE...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 >/dev/null; then
    echo "skip  check-docs: no python3"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
MEMPLAN=$(realpath "${MEMPLAN:-build/memplan}") OMP_WAIT_POLICY=passive exec python3 "$here/run_pages.py" "$@"

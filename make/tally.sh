#!/bin/bash
# Runs commands one after the other, goes on when one fails, and closes with the sum of the closing lines
# ("N passed, N failed, N skipped") that they printed. A command that prints none counts only when it fails.
#
#     make/tally.sh COMMAND...
set -u

passed=0 failed=0 skipped=0
output=$(mktemp "${TMPDIR:-/tmp}/memplan-tally.XXXXXX") || exit 1
trap 'rm -f "$output"' EXIT

# A command that sums up others prints their closing lines too: only its last one is its own.
add_up() {
    local status=$1 line counts
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$output" | tail -n 1)
    read -r -a counts <<<"${line//[^0-9]/ }"
    ((passed += ${counts[0]:-0}, failed += ${counts[1]:-0}, skipped += ${counts[2]:-0}))
    if [ "$status" -ne 0 ] && [ "${counts[1]:-0}" -eq 0 ]; then
        ((failed += 1))
    fi
    return 0
}

for command in "$@"; do
    echo "== $command"
    SECONDS=0
    bash -c "$command" 2>&1 | tee "$output"
    status=${PIPESTATUS[0]}
    add_up "$status"
    [ "$status" -eq 0 ] || echo "== failed after $SECONDS s: $command"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

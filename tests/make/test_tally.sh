# shellcheck shell=bash disable=SC2154
# make/tally.sh: the sum of closing lines, whatever fails in between.

tally() { "$root/make/tally.sh" "$@"; }
last_line() {
    tally "${@:2}" | tee tallied
    [ "$(tail -n 1 tallied)" = "$1" ]
}

expect "tally: closing lines are added up" \
    last_line "5 passed, 0 failed, 3 skipped" "echo 2 passed, 0 failed, 1 skipped" "echo 3 passed, 0 failed, 2 skipped"
expect "tally: of a command that adds up others, the last line counts" \
    last_line "7 passed, 0 failed, 0 skipped" "echo 3 passed, 0 failed, 0 skipped; echo 7 passed, 0 failed, 0 skipped"
expect "tally: a command without a closing line counts when it fails" \
    last_line "1 passed, 1 failed, 0 skipped" true false "echo 1 passed, 0 failed, 0 skipped"
expect "tally: failed tests are not counted again for the exit status of their command" \
    last_line "1 passed, 2 failed, 0 skipped" "echo 1 passed, 2 failed, 0 skipped; exit 1"
expect "tally: failures make it fail" fails tally false true
expect "tally: no failure makes it pass" tally "echo 0 passed, 0 failed, 4 skipped"

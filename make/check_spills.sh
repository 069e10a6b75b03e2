#!/bin/sh
# Reads what ptxas said of each kernel and fails when one keeps registers in memory (spills): such a kernel is slow, and
# nothing else would tell.
#
#     make/check_spills.sh LOG...
set -eu

awk '
/Function properties for/ { kernel = $NF }
/bytes spill stores/ {
    kernels++
    if (!/ 0 bytes spill stores, 0 bytes spill loads/) {
        bad++
        sub(/^ */, "")
        print FILENAME ": " kernel ": " $0 | "cat >&2"
    }
}
END {
    if (kernels == 0) {
        print "cuda: ptxas reported no kernel; was it called with -Xptxas -v?" | "cat >&2"
        exit 1
    }
    print "cuda: " kernels " kernels built, " bad + 0 " with spills"
    exit bad > 0
}' "$@"

# shellcheck shell=bash disable=SC2154
# make/check_layers.sh: a tree that keeps the rules passes, and each rule, once broken, is reported with its place.

# file PATH INCLUDE...: a source that includes these, each written with its quotes or angle brackets.
file() {
    mkdir -p "$(dirname "$1")"
    printf '#include %s\n' "${@:2}" >"$1"
}
layers() { "$root/make/check_layers.sh" .; }

file base/error.h '<stdio.h>'
file base/error.c '"base/error.h"'
file model/plan.c '"base/error.h"'
file profiler/store.h '<stdint.h>'
file profiler/store.c '"profiler/store.h"' '<sqlite3.h>'
file profiler/recorder.c '<sqlite3.h>'
file planner/search.c '"model/plan.h"' '"profiler/store.h"'
file kernels/cpu/matmul.c '"kernels/kernels.h"' '"kernels/cpu/tile.h"' '"device/device.h"'
file tests/model/test_plan.c '"planner/search.h"' '<sqlite3.h>'
file cli/main.c '"planner/search.h"'
file tests/main.c '"tests/test.h"'
expect "layers: a tree that keeps the table passes" layers

# breach SENTENCE TEXT PATH INCLUDE...: with this file the check fails and says TEXT; then the file goes.
breach() {
    local sentence=$1 text=$2 path=$3
    file "${@:3}"
    expect "layers: $sentence" prints "$text" layers
    expect "layers: ... and that is a failure" fails layers
    rm "$path"
}

breach "base includes nothing above it" "base/upward.c:2: base/ may not include model/plan.h" \
    base/upward.c '<stdio.h>' '"model/plan.h"'
breach "the planner does not run anything" "planner/ may not include trainer/step.h" planner/runs.c '"trainer/step.h"'
breach "the planner sees the store alone of the profiler" "planner/ may not include profiler/recorder.h" \
    planner/peeks.c '"profiler/recorder.h"'
breach "nothing includes the command line" "trainer/ may not include cli/cli.h" trainer/talks.c '"cli/cli.h"'
breach "an include names its folder" '"error.h" names no folder' model/short.c '"error.h"'
breach "an include does not climb" '"../base/error.h" names no folder' model/climbs.c '"../base/error.h"'
breach "spaces hide nothing" "model/ may not include device/device.h" model/spaced.c '  "device/device.h"'
breach "the fast kernels do not lean on the reference" "back ends share only kernels/*.h" \
    kernels/cpu/leans.c '"kernels/reference/element.h"'
breach "the reference does not lean on the fast kernels" "back ends share only kernels/*.h" \
    kernels/reference/leans.c '"kernels/cpu/tile.h"'
breach "a third user of a vendor's header is too many" "sqlite3.h is included by 3 files" profiler/third.c '<sqlite3.h>'
breach "CUDA sources are read too" "kernels/ may not include trainer/step.h" kernels/cuda/launch.cu '"trainer/step.h"'
breach "a name is taken once" "the name is taken by model/plan.c" planner/plan.c '"base/error.h"'
expect "layers: without the breaches the tree passes again" layers

#!/bin/bash
# Feeds every parser of jobs/ with libFuzzer, under the address and undefined-behaviour sanitizers, leaks included, starting from
# the examples and seeds/, with all names that jobs/ writes out as a dictionary: FUZZ_SECONDS each (3), of FUZZ_TARGETS (all). A
# crash, a hang of ten seconds or a leak fails it, and leaves what did it in FUZZ_FOLDER.
#
#     FUZZ_SECONDS=600 FUZZ_TARGETS="yaml hub" make check-fuzz
set -u

seconds=${FUZZ_SECONDS:-3}
folder=${FUZZ_FOLDER:-${BUILD:-build}/fuzz}
examples=examples/launch
compiler=$(command -v clang || true)
targets=${FUZZ_TARGETS:-}
passed=0 failed=0

finish() {
    echo "$passed passed, $failed failed, $1 skipped"
    [ "$failed" -eq 0 ]
    exit
}

probe() {
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        "$compiler" -x c -fsanitize=fuzzer,address -o "$folder/probe" - 2>/dev/null
}

compile() {
    "$compiler" -g -O1 -std=c11 -D_GNU_SOURCE -fsanitize=address,undefined -fno-sanitize-recover=undefined -I. "$@"
}

# What all targets are linked with, once.
build_parsers() {
    local source objects=()
    for source in jobs/*.c base/*.c model/*.c planner/frameworks/{workload,allocator_settings}.c; do
        objects+=("$folder/$(basename "$source" .c).o")
        compile -fsanitize=fuzzer-no-link -c "$source" -o "${objects[-1]}" || return
    done
    rm -f "$folder/parsers.a"
    ar rcs "$folder/parsers.a" "${objects[@]}"
}

# Options, keys and choices, as the tables of jobs/ spell them.
write_dictionary() {
    grep -ohE '"[A-Za-z0-9_.|-]{3,60}"' jobs/*.c | tr '|' '\n' | sed -E 's/^"?/"/; s/"?$/"/' |
        grep -xE '"[^"]{2,}"' | sort -u >"$folder/names.dict"
}

# build TARGET
build() {
    compile -fsanitize=fuzzer -DFUZZ_TARGET="fuzz_$1" -o "$folder/$1" tests/jobs/fuzz_targets.c "$folder/parsers.a" -ljansson -lm
}

# fuzz TARGET SEEDS...
fuzz() {
    local target=$1 corpus="$folder/$1.corpus" log="$folder/$1.log"
    shift
    [[ -z $targets || " $targets " == *" $target "* ]] || return
    mkdir -p "$corpus"
    for seed in "$@"; do
        cp "$seed" "$corpus/seed-$(cksum <"$seed" | cut -d ' ' -f 1)"
    done
    if build "$target" >"$log" 2>&1 &&
        "$folder/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -max_len=16000 \
            -dict="$folder/names.dict" -artifact_prefix="$folder/$target." "$corpus" >"$log" 2>&1; then
        echo "ok    $target: $(grep -o 'DONE.*' "$log" | tr -s ' ')"
        ((passed += 1))
    else
        echo "FAIL  $target: see $log"
        grep -E 'ERROR|error:|SUMMARY' "$log" | head -n 5
        ((failed += 1))
    fi
}

mkdir -p "$folder"
if [ -z "$compiler" ] || ! probe; then
    echo "skip  fuzz: no clang with libFuzzer; the unit tests feed the parsers mutated examples"
    finish 1
fi
if ! build_parsers >"$folder/build.log" 2>&1; then
    echo "FAIL  fuzz: the parsers do not build with $compiler: see $folder/build.log"
    failed=1
    finish 0
fi
write_dictionary
fuzz script $examples/*.sh tests/jobs/scripts/*.sh tests/jobs/seeds/*.sh
fuzz launch $examples/*.sh
fuzz deepspeed $examples/*.json
fuzz toml $examples/*.toml
fuzz yaml $examples/*.yaml tests/jobs/scripts/*.yaml tests/jobs/seeds/*.yaml
fuzz config $examples/models/*/config.json
fuzz weights tests/jobs/weights_seed.json
fuzz stages tests/jobs/seeds/stages_*.txt
fuzz overrides tests/jobs/seeds/overrides_*.txt
fuzz hub tests/jobs/seeds/hub_*.txt
finish 0

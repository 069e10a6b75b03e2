#!/bin/bash
# Proves `make install` and `make uninstall` in a scratch folder: what is installed works without the tree that it was built in.
#
#     BUILD=build tests/make/check_install.sh
set -u

build=${BUILD:-build}
passed=0 failed=0 skipped=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/memplan-install.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
# Neither the make above nor a variable of the person who runs this may help.
unset MAKEFLAGS MAKELEVEL MFLAGS MEMPLAN MEMPLAN_MPI_LIBRARY MEMPLAN_CUDA_LIBRARY
root=$scratch/stage/opt/memplan
program=$root/bin/memplan

verdict() {
    local sentence=$1
    shift
    if "$@" >"$scratch/output" 2>&1; then
        echo "ok    $sentence"
        ((passed += 1))
    else
        echo "FAIL  $sentence"
        sed 's/^/      /' "$scratch/output"
        ((failed += 1))
    fi
}

skip() {
    echo "skip  $1"
    ((skipped += 1))
}

staged() { make "$1" BUILD="$build" DESTDIR="$scratch/stage" PREFIX=/opt/memplan; }

answers() ( cd "$scratch" && "$program" predict gpt2-tiny && "$program" --version)

pages() {
    local command
    for command in $("$program" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        MANPATH=$root/share/man man "memplan-$command" | grep -q "memplan-$command" || return 1
        [ -s "$root/share/doc/memplan/commands/$command.md" ] || return 1
    done
    MANPATH=$root/share/man man memplan | grep -q "memplan-train(1)" && [ -s "$root/share/doc/memplan/quick-start.md" ]
}

checks_examples() (
    cd "$scratch" || exit 1
    count=0
    for script in "$root"/share/memplan/examples/launch/*.sh; do
        "$program" check "$script" --device h200 --memory 1000TiB >/dev/null || exit 1
        ((count += 1))
    done
    [ "$count" -gt 20 ]
)

completes() {
    # shellcheck disable=SC1091,SC2016
    PATH=$root/bin:$PATH bash -c 'source "$1" && COMP_WORDS=(memplan pred) COMP_CWORD=1 && _memplan && [ "${COMPREPLY[*]}" = predict ]' \
        - "$root/share/bash-completion/completions/memplan"
}

# Two processes are two ranks only where the MPI transport was found. The tree was moved, so that no path can be built in.
launches() (
    mv "$root" "$scratch/moved" && mkdir "$scratch/run" && cd "$scratch/run" &&
        timeout 60 mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -np 2 "$scratch/moved/bin/memplan" \
            train gpt2-tiny --data random --dp 2 --steps 2 && mv "$scratch/moved" "$root"
)

# The library that was put there is the one that is opened: it says that it is none of ours.
opens_cuda() (
    cp "$scratch/none.so" "$root/lib/libmemplan_cuda.so" && cd "$scratch" &&
        "$program" train gpt2-tiny --data random --device cuda 2>&1 | grep -F "../lib/libmemplan_cuda.so: file too short"
)

nothing_is_left() { staged uninstall && [ -z "$(find "$scratch/stage" -type f)" ] && [ ! -e "$root" ]; }

others_stay() {
    staged install && touch "$root/bin/other" && staged uninstall && [ "$(find "$root" -type f)" = "$root/bin/other" ]
}

verdict "make install works with DESTDIR and PREFIX" staged install
verdict "the installed program answers" answers
if command -v man >/dev/null; then
    verdict "every command has a man page and a page in docs" pages
else
    skip "every command has a man page and a page in docs: no man"
fi
verdict "bash finds the completion" completes
verdict "the launch scripts of the examples are there, with the files that they read" checks_examples
if [ -e "$root/lib/libmemplan_mpi.so" ] && command -v mpirun >/dev/null; then
    verdict "a moved installation finds its MPI transport" launches
else
    skip "a moved installation finds its MPI transport: no mpirun, or built without MPI"
fi
echo "not a library" >"$scratch/none.so"
verdict "it looks for the CUDA back end beside itself" opens_cuda
verdict "make uninstall leaves nothing" nothing_is_left
verdict "make uninstall leaves what others have put there" others_stay
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

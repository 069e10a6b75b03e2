#!/bin/bash
# Shows what a build finds on this machine, and the one command that installs the rest.
# Libraries are compiled and linked with, not looked up; versions come from their own headers or programs.
set -u

here=$(dirname "$0")
cc=${CC:-gcc}
cuda=${CUDA_HOME:-/usr/local/cuda}
yes=ok no=--
if [ -t 1 ] && [[ $(locale charmap 2>/dev/null) == UTF-8 ]]; then
    yes=$'\033[32m✓\033[0m ' no=$'\033[31m✗\033[0m '
fi

# found NAME VERSION NOTE; absent NAME NOTE
found() { printf '  %s  %-12s %-14s %s\n' "$yes" "$1" "$2" "$3"; }
absent() { printf '  %s  %-12s %-14s %s\n' "$no" "$1" "-" "$2"; }

# The first thing that looks like a version in the output of a command.
version() { "$@" 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)*' | head -n 1; }

# macro HEADER NAME: the number that a header defines NAME as.
macro() {
    printf '#include <%s>\n%s\n' "$1" "$2" | "$cc" -E -P - 2>/dev/null | tail -n 1 | tr -d ' "()' | grep '^[0-9]'
}

# library NAME PACKAGE VERSION NOTE HEADER FUNCTION FLAGS...
library() {
    local name=$1 package=$2 number=$3 note=$4
    shift 4
    if "$here/probe.sh" "$@"; then
        found "$name" "$number" "$note"
    else
        absent "$name" "$note: $package"
    fi
}

# program NAME PACKAGE NOTE COMMAND...
program() {
    local name=$1 package=$2 note=$3
    shift 3
    if command -v "$1" >/dev/null; then
        found "$name" "$(version "$@")" "$note"
    else
        absent "$name" "$note: $package"
    fi
}

dnnl_version() {
    echo "$(macro dnnl_version.h DNNL_VERSION_MAJOR).$(macro dnnl_version.h DNNL_VERSION_MINOR).$(macro dnnl_version.h DNNL_VERSION_PATCH)"
}

show_build() {
    echo "To build"
    program compiler build-essential "$cc" "$cc" -dumpfullversion
    library sqlite libsqlite3-dev "$(macro sqlite3.h SQLITE_VERSION)" "recordings" sqlite3.h sqlite3_open -lsqlite3
    library jansson libjansson-dev "$(macro jansson.h JANSSON_VERSION)" "JSON" jansson.h json_object -ljansson
    library oneDNN libdnnl-dev "$(dnnl_version)" "fast kernels on the CPU" dnnl.h dnnl_sgemm -ldnnl
}

show_tests() {
    echo "To test and measure"
    library check "check libsubunit-dev" "$(version pkg-config --modversion check)" "unit tests" check.h suite_create -lcheck -lsubunit -lrt -lm -lpthread
    library OpenBLAS libopenblas-openmp-dev "$(version pkg-config --modversion openblas)" "yardstick of bench_gemm" \
        cblas.h cblas_sgemm -lopenblas
    program sqlite3 sqlite3 "queries by hand" sqlite3 --version
    torch=$(/usr/bin/python3 -c 'import torch; print(torch.__version__)' 2>/dev/null)
    if [ -n "$torch" ]; then
        found PyTorch "$torch" "comparisons: make check-torch"
    else
        absent PyTorch "comparisons: make deps-torch"
    fi
}

show_gpu() {
    echo "For GPUs and clusters (nothing else needs them)"
    if [ -x "$cuda/bin/nvcc" ]; then
        found CUDA "$(version "$cuda/bin/nvcc" --version)" "$cuda"
    else
        absent CUDA "no nvcc in $cuda/bin; set CUDA_HOME"
    fi
    for name in nccl cupti; do
        header=$(find -L "$cuda/include" "$cuda/extras/CUPTI/include" /usr/include -maxdepth 1 -name $name.h 2>/dev/null | head -n 1)
        if [ -n "$header" ]; then
            found "${name^^}" "" "$header"
        else
            absent "${name^^}" "no $name.h in $cuda/include"
        fi
    done
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
    if [ -n "$gpu" ]; then
        found GPU "" "$gpu"
    else
        absent GPU "nvidia-smi sees none"
    fi
    program MPI libopenmpi-dev "ranks as processes" mpicc --version
}

echo "memplan on $(uname -sm), $(nproc) cores"
show_build
show_tests
show_gpu

missing=$("$here/deps.sh" -n build test torch | tr '\n' ' ')
if [ -n "$missing" ]; then
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo="sudo "
    printf '\nTo install the rest (or: make deps deps-torch):\n  %sapt-get update && %sapt-get install -y %s\n' "$sudo" "$sudo" "${missing% }"
else
    printf '\nEverything that Debian packages is installed.\n'
fi

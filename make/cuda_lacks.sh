#!/bin/sh
# Says in one sentence what is missing here to build the CUDA back end, or nothing: toolkits older than CUDA 13 end in a compiler's
# page about names that they do not have. Headers are enough for the emulation; a library for GPUs takes nvcc, and NVIDIA's own.
#
#     make/cuda_lacks.sh headers|all
# Reads $CUDA_HOME, $NCCL_HOME (empty: NCCL is in CUDA_HOME or where the system has it), $NVCC and $CC.
set -u

home=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-}
least=13000

lack() {
    echo "$*"
    exit 0
}

# 13000 as 13.0.
spoken() { echo "$(($1 / 1000)).$(($1 % 1000 / 10))"; }

too_old() {
    what=$1 version=$2 other=
    for folder in "$(dirname "$home")"/cuda-1[3-9]*; do
        [ -d "$folder" ] && other=$folder
    done
    lack "$what is CUDA $(spoken "$version"), and $(spoken $least) or newer is needed (with a driver of 580 or later); install it, or set CUDA_HOME${other:+: there is $other}"
}

# Where it mostly is, or wherever the compiler looks besides, which takes longer to ask.
has_header() {
    for folder in "$home/include" "$home/extras/CUPTI/include" ${nccl:+"$nccl/include"} /usr/include; do
        [ -e "$folder/$1" ] && return
    done
    printf '#include <%s>\n' "$1" | ${CC:-gcc} -w -E -isystem "$home/include" -isystem "$home/extras/CUPTI/include" \
        ${nccl:+-isystem "$nccl/include"} - >/dev/null 2>&1
}

# links HEADER FUNCTION LIBRARY
links() {
    "$(dirname "$0")/probe.sh" "$1" "$2" -isystem "$home/include" ${nccl:+-isystem "$nccl/include"} ${nccl:+-L"$nccl/lib"} \
        -L"$home/lib64" "-l$3" -Wl,--allow-shlib-undefined
}

check_headers() {
    version=$(sed -n 's/^#define CUDART_VERSION  *\([0-9]*\).*/\1/p' "$home/include/cuda_runtime_api.h" 2>/dev/null)
    [ -n "$version" ] || lack "there are no CUDA headers in $home/include; install the CUDA toolkit, or set CUDA_HOME"
    [ "$version" -ge $least ] || too_old "the toolkit in $home" "$version"
    has_header cupti.h || lack "there is no cupti.h in $home/include or $home/extras/CUPTI/include; install the toolkit's CUPTI (cuda-cupti-dev)"
    has_header cublasLt.h || lack "there is no cublasLt.h in $home/include; install the toolkit's cuBLAS (libcublas-dev)"
    has_header nvtx3/nvToolsExt.h || lack "there is no nvtx3/nvToolsExt.h in $home/include; install the toolkit's NVTX (cuda-nvtx)"
    has_header nccl.h || lack "there is no nccl.h in $home/include, nor where the system has headers; install NCCL (libnccl-dev of NVIDIA's repository), or set NCCL_HOME to the folder with its include and lib"
}

check_libraries() {
    nvcc=${NVCC:-$home/bin/nvcc}
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$release" ] || lack "$nvcc does not run; install the CUDA toolkit, or set CUDA_HOME"
    # shellcheck disable=SC2086
    set -- $release
    [ $(($1 * 1000 + $2 * 10)) -ge $least ] || too_old "$nvcc" $(($1 * 1000 + $2 * 10))
    links cuda_runtime_api.h cudaMalloc cudart || lack "nothing links with libcudart of $home/lib64; install the whole CUDA toolkit"
    links cublasLt.h cublasLtCreate cublasLt || lack "nothing links with libcublasLt of $home/lib64; install the toolkit's cuBLAS (libcublas-dev)"
    links nccl.h ncclGetVersion nccl || lack "nothing links with libnccl; install NCCL (libnccl-dev of NVIDIA's repository), or set NCCL_HOME to the folder with its include and lib"
}

check_headers
[ "$1" = headers ] || check_libraries

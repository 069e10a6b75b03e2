# shellcheck shell=bash disable=SC2154
# make/cuda_lacks.sh: what is missing for CUDA is named before anything is compiled.

# toolkit VERSION: one in the folder cuda, headers alone.
toolkit() {
    rm -rf cuda
    mkdir -p cuda/include/nvtx3 cuda/extras/CUPTI/include
    printf '#define CUDART_VERSION  %s\n' "$1" >cuda/include/cuda_runtime_api.h
    touch cuda/include/cublasLt.h cuda/include/nvtx3/nvToolsExt.h cuda/extras/CUPTI/include/cupti.h cuda/include/nccl.h
}
lacks() { env -u CPATH CC="gcc -nostdinc" CUDA_HOME="$PWD/cuda" NCCL_HOME="${nccl-}" NVCC= "$root/make/cuda_lacks.sh" "$1"; }
nothing() { [ -z "$(lacks "$@")" ]; }

toolkit 13000
expect "cuda: headers are enough for the emulation" nothing headers
toolkit 12090
expect "cuda: an old toolkit is named with its version" prints "the toolkit in $PWD/cuda is CUDA 12.9, and 13.0 or newer is needed" lacks headers
mkdir cuda-13.1
expect "cuda: and a newer one beside it" prints "set CUDA_HOME: there is $PWD/cuda-13.1" lacks headers
toolkit 13010
rm cuda/extras/CUPTI/include/cupti.h
expect "cuda: CUPTI may be missing" prints "there is no cupti.h in $PWD/cuda/include or $PWD/cuda/extras/CUPTI/include" lacks headers
toolkit 13010
if [ ! -e /usr/include/nccl.h ]; then
    mkdir -p nccl/include && mv cuda/include/nccl.h nccl/include
    expect "cuda: so may NCCL" prints "there is no nccl.h in $PWD/cuda/include, nor where the system has headers" lacks headers
    nccl=$PWD/nccl
    expect "cuda: it may be elsewhere" nothing headers
    unset nccl
    toolkit 13010
fi
expect "cuda: without nvcc there is nothing for GPUs" prints "$PWD/cuda/bin/nvcc does not run" lacks all
mkdir cuda/bin
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.131"\n' >cuda/bin/nvcc
chmod +x cuda/bin/nvcc
expect "cuda: nvcc may be older than the headers" prints "$PWD/cuda/bin/nvcc is CUDA 12.4" lacks all
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.2, V13.2.1"\n' >cuda/bin/nvcc
expect "cuda: libraries are linked with, not looked up" prints "nothing links with libcudart of $PWD/cuda/lib64" lacks all

# The whole way through make: one sentence, and nothing compiled.
toolkit 12090
builds_nothing() {
    make -C "$root" BUILD="$PWD/build" CUDA_HOME="$PWD/cuda" NVCC=/bin/true cuda >said 2>&1 && return 1
    cat said
    grep -q '^cuda: the toolkit in .* is CUDA 12.9' said && ! grep -q '^NVCC\|^CC.*(CUDA)\|error:' said
}
expect "cuda: make cuda says so, and compiles nothing" builds_nothing
expect "cuda: the emulation is skipped for the same reason" prints "skip  check-cuda-emulated: the toolkit in $PWD/cuda is CUDA 12.9" \
    make -C "$root" BUILD="$PWD/build" CUDA_HOME="$PWD/cuda" check-cuda-emulated

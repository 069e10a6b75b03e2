# shellcheck shell=bash disable=SC2154
# Which of tests/*/check_*.sh the targets of the Makefile run.

mkdir -p cuda/include/nvtx3
echo '#define CUDART_VERSION  13000' >cuda/include/cuda_runtime_api.h
touch cuda/include/cupti.h cuda/include/cublasLt.h cuda/include/nccl.h cuda/include/nvtx3/nvToolsExt.h
for target in check check-cuda-emulated; do
    make -C "$root" -n BUILD="$PWD/build" CUDA_HOME="$PWD/cuda" $target >"of_$target" 2>&1
done

# runs TARGET CHECK: its name ends a command.
runs() { grep -q -e "make[^ ]* $2\$" "of_$1"; }

for script in "$root"/tests/*/check_*.sh; do
    name=$(basename "$script" .sh)
    check=check-${name#check_}
    case $check in
        check-cuda_*) expect "checks: $check is part of check-cuda-emulated" runs check-cuda-emulated "$check" ;;
        *) expect "checks: $check is part of check" runs check "$check" ;;
    esac
done

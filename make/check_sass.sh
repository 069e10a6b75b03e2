#!/bin/sh
# Reads the machine code that ptxas made of the kernels, with NVIDIA's cuobjdump, and fails where it is not what the sources
# promise:
#
#     no local memory, but where RoPE reduces large angles
#     kernels that take packs read and write global memory 16 bytes at a time
#     attention in BF16 has exactly the products (HMMA) that its tiles need, so that nothing is computed twice, reads its
#     fragments by LDSM, and copies tiles 16 bytes at a time
#
#     make/check_sass.sh OBJECT...
#
# Prints a table of attention's kernels in BF16 for sm_90: tile, products, registers, and how many blocks of 128 threads the
# registers of a multiprocessor (65,536) are enough for.
set -eu

dump=$(command -v "${CUOBJDUMP:-cuobjdump}" || ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2>/dev/null || true)
if [ -z "$dump" ]; then
    echo "skip  cuda: the machine code is not read: no cuobjdump on the PATH or in \$CUDA_HOME/bin; it comes with the toolkit, or as nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm from PyPI"
    exit 0
fi

for object in "$@"; do
    echo "object $object"
    "$dump" -res-usage -sass "$object"
done | awk '
/^object / { object = $2 }
/arch = sm_/ { arch = $3 }
/^ *Function [^:]*:$/ { resource = $2; sub(/:$/, "", resource) }
/ REG:[0-9]/ { match($0, /REG:[0-9]+/); registers[arch, resource] = substr($0, RSTART + 4, RLENGTH - 4) }
/Function : / { kernel = arch SUBSEP $3 SUBSEP object; kernels[kernel] = registers[arch, $3] }
/^ *\/\*[0-9a-f]+\*\// {
    line = $0
    sub(/^ *\/\*[0-9a-f]+\*\/ */, "", line)
    sub(/^@!?U?P[0-9T]+ +/, "", line)
    sub(/[ ;].*/, "", line)
    part = line
    sub(/[.].*/, "", part)
    count[kernel, part]++
    if (line ~ /[.]128/) wide[kernel, part]++
    if (line ~ /^LDSM/) fragments[kernel]++
}

function complain(kernel, text,    name) {
    split(kernel, name, SUBSEP)
    print "cuda: " name[1] " " name[2] ": " text | "cat >&2"
    bad++
}

# The numbers of attention_bf16<...> and behind it.
function numbers(name, out) {
    sub(/.*attention_bf16ILi/, "", name)
    sub(/E+v.*/, "", name)
    gsub(/E+Li/, " ", name)
    return split(name, out, " ")
}

function products(name, number) {
    if (name ~ /attention_forward/) return 2
    if (name ~ /attention_queries_grad/) return 3
    return number[5] == 3 ? 4 : number[5] == 1 ? 3 : 2
}

function check_attention(kernel, name,    number, wanted, blocks) {
    numbers(name, number)
    wanted = products(name, number) * number[1] / 16 * number[3] / 16 * number[2] * 2
    if (count[kernel, "HMMA"] + 0 != wanted)
        complain(kernel, count[kernel, "HMMA"] + 0 " products (HMMA) where the tiles need " wanted)
    if (!fragments[kernel] || !wide[kernel, "LDGSTS"])
        complain(kernel, "no LDSM, or no LDGSTS of 16 bytes")
    blocks = int(65536 / (128 * int((kernels[kernel] + 7) / 8) * 8))
    if (kernel ~ /^sm_90/) {
        sub(/^_Z[0-9]+/, "", name)
        sub(/I14attention.*/, "", name)
        row[++rows] = sprintf("%-24s %4d %3d %8d %6d %6d %10d %7d", name (number[5] ? " " number[5] : ""), number[1], number[2], number[3], wanted, fragments[kernel], kernels[kernel], blocks)
    }
}

END {
    for (kernel in kernels) {
        split(kernel, name, SUBSEP)
        total++
        if (name[2] !~ /rope|qk_norm/ && count[kernel, "LDL"] + count[kernel, "STL"])
            complain(kernel, "uses local memory")
        if (name[2] ~ /attention_bf16I/)
            check_attention(kernel, name[2])
        else if (name[2] ~ /_kernelI(13__nv_bfloat16Li8|fLi4)/ && name[2] !~ /rope/ && !(wide[kernel, "LDG"] && wide[kernel, "STG"]))
            complain(kernel, "no loads or no stores of 16 bytes, though it takes packs")
    }
    if (!total) {
        print "cuda: cuobjdump showed no kernel" | "cat >&2"
        exit 1
    }
    print "kernel                   size  MT  columns   HMMA   LDSM  registers  blocks"
    fflush()
    for (i = 1; i <= rows; i++)
        print row[i] | "LC_ALL=C sort"
    close("LC_ALL=C sort")
    print "cuda: the machine code of " total " kernels was read, " bad + 0 " are not as promised"
    exit bad > 0
}'

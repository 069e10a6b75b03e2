# shellcheck shell=bash disable=SC2016,SC2154
# make/check_sass.sh: what it says of machine code that is, and is not, as promised. A script prints the code, as cuobjdump would.

printf '#!/bin/sh\ncat "$3"\n' >cuobjdump
chmod +x cuobjdump
read_sass() { CUOBJDUMP=$PWD/cuobjdump "$root/make/check_sass.sh" "$@"; }

# code KERNEL INSTRUCTION...: in the form of cuobjdump -res-usage -sass.
code() {
    local kernel=$1
    shift
    printf 'arch = sm_90\nResource usage:\n Function %s:\n  REG:157 STACK:0 SHARED:0\n\t\tFunction : %s\n' "$kernel" "$kernel"
    printf '        /*0000*/                   %s ;   /* 0x0 */\n' "$@"
}

# Tiles of 16 x 16 and MT = 1: two products of 1 x 1 x 2.
forward=_Z17attention_forwardI14attention_bf16ILi16ELi1ELi16EEEv15attention_shapePKNT_1TE
hmma='HMMA.16816.F32.BF16 R4, R8, R12, R4'
code $forward "$hmma" "$hmma" "@P0 $hmma" "$hmma" 'LDSM.16.M88.4 R8, [R2]' '@!P0 LDGSTS.E.BYPASS.128 [R3], [R4.64]' >good
code $forward "$hmma" "$hmma" "$hmma" 'LDSM.16.M88.4 R8, [R2]' 'LDGSTS.E.BYPASS.128 [R3], [R4.64]' >few
code $forward "$hmma" "$hmma" "$hmma" "$hmma" 'LDSM.16.M88.4 R8, [R2]' 'LDGSTS.E [R3], [R4.64]' >narrow
code _Z11gelu_kernelIfLi4EEvlPKT_PS0_ 'LDG.E.128 R4, [R2.64]' 'STG.E.128 [R2.64], R4' >packs
code _Z11gelu_kernelIfLi4EEvlPKT_PS0_ 'LDG.E R4, [R2.64]' 'STG.E.128 [R2.64], R4' >single
code _Z11gelu_kernelIfLi1EEvlPKT_PS0_ 'LDG.E R4, [R2.64]' 'STL [R1], R4' >local
: >empty

# 65,536 registers / (128 threads x 160) = 3.2 blocks.
expect "sass: products, fragments, registers and blocks of attention are shown" \
    prints "attention_forward          16   1       16      4      1        157       3" read_sass good
expect "sass: code as promised passes" read_sass good packs
expect "sass: a product too few is told" prints "3 products (HMMA) where the tiles need 4" read_sass few
expect "sass: so are tiles copied by less than 16 bytes" prints "no LDSM, or no LDGSTS of 16 bytes" read_sass narrow
expect "sass: and packs that are read one by one" prints "no loads or no stores of 16 bytes" read_sass single
expect "sass: and local memory" prints "uses local memory" read_sass local
expect "sass: any of them makes it fail" fails read_sass good packs single
expect "sass: no kernel at all makes it fail" fails read_sass empty
expect "sass: without cuobjdump it says where to get it" prints "skip  cuda: the machine code is not read" \
    env CUOBJDUMP=no-cuobjdump CUDA_HOME=/nowhere "$root/make/check_sass.sh" good

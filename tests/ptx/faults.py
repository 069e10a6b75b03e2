#!/usr/bin/env python3
"""Puts faults into copies of the attention kernels, one at a time, and sees that check-ptx's tests find each.

    python3 tests/ptx/faults.py [NUMBER...]     some of them; some ten minutes for all

Most are in what only nvcc compiles, where the emulation cannot look. Needs what `make check-ptx` has built in $BUILD; works in a
scratch folder, and leaves nothing."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
LOADED = '"=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])\n                 : "r"(row.address + 2 * offset)'

# What is wrong, in which file of kernels/cuda, what stands there, and what does then.
FAULTS = [
    ("mma: a[1] and a[2] swapped", "mma.cuh", '"r"(a[0]), "r"(a[1]), "r"(a[2])', '"r"(a[0]), "r"(a[2]), "r"(a[1])'),
    ("mma: b[0] and b[1] swapped", "mma.cuh", '"r"(b[0]), "r"(b[1])', '"r"(b[1]), "r"(b[0])'),
    ("mma: the upper and the lower rows swapped", "mma.cuh", '"+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])',
     '"+f"(bottom[0]), "+f"(bottom[1]), "+f"(top[0]), "+f"(top[1])'),
    ("ldmatrix: out[1] and out[2] swapped", "mma.cuh", LOADED, LOADED.replace("out[1]", "out[x]").replace("out[2]", "out[1]").replace("out[x]", "out[2]")),
    ("ldmatrix: no .trans", "mma.cuh", "x4.trans.shared", "x4.shared"),
    ("ldmatrix: offsets in elements", "mma.cuh", LOADED, LOADED.replace("2 * offset", "offset")),
    ("cp.async: whole packs of rows that end before", "mma.cuh", "valid ? BYTES : 0", "valid ? BYTES : BYTES"),
    ("cp.async: not waited for", "mma.cuh", 'asm volatile("cp.async.wait_all;" ::: "memory");', ""),
    ("a shared address that is not converted", "mma.cuh", "__cvta_generic_to_shared(shared)", "reinterpret_cast<uintptr_t>(shared)"),
    ("lg2 in place of ex2", "mma.cuh", "ex2.approx", "lg2.approx"),
    ("the halves of a BF16 pair swapped", "mma.cuh", "__floats2bfloat162_rn(low, high)", "__floats2bfloat162_rn(high, low)"),
    ("forward: no barrier before the next keys", "attention_kernels.cuh",
     "__syncthreads(); /* the values are here, and nobody needs the keys any more */", ""),
    ("backward: no barrier before the next queries", "attention_kernels.cuh",
     "__syncthreads(); /* these queries are here, and nobody needs those before */", ""),
    ("a warp's rows are stored without __syncwarp()", "attention_tile.cuh", "__syncwarp();", ""),
]


def copy_tree(scratch):
    """Sources are links but for the kernels; what was built is a copy, so that only the kernels are built anew."""
    for path in pathlib.Path(".").iterdir():
        if path.name not in ("kernels", "build", ".git"):
            (scratch / path.name).symlink_to(path.resolve())
    shutil.copytree("kernels", scratch / "kernels", copy_function=shutil.copy2)
    shutil.copytree(BUILD, scratch / "build", copy_function=shutil.copy2, symlinks=True)


def found_by_tests(scratch):
    """What the tests say of the kernels in the scratch folder; empty when nothing is wrong."""
    for kernels in (scratch / "kernels/cuda").glob("attention_*.cu"):
        kernels.touch()  # what make knows of headers is of the other folder
    made = subprocess.run(["make", "-s", "-C", scratch, f"BUILD={scratch}/build", f"{scratch}/build/run-ptx-tests"],
                          capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"the kernels do not compile: {made.stderr[-1000:]}")
    run = subprocess.run([scratch / "build/run-ptx-tests", "--jobs", "2", "cuda_attention"], capture_output=True, text=True)
    words = [line.strip() for line in run.stdout.splitlines() if line.startswith("ptx:") or "test_cuda_attention.c:" in line]
    return words[0] if run.returncode and words else ""


def main():
    numbers = [int(number) for number in sys.argv[1:]] or range(len(FAULTS))
    missed = 0
    with tempfile.TemporaryDirectory(prefix="memplan-faults.") as folder:
        scratch = pathlib.Path(folder)
        copy_tree(scratch)
        for number in numbers:
            name, file, there, then = FAULTS[number]
            path = scratch / "kernels/cuda" / file
            text = path.read_text()
            if there not in text:
                sys.exit(f"{file} has changed: it lacks what fault {number}, {name}, is put into")
            path.write_text(text.replace(there, then, 1))
            words = found_by_tests(scratch)
            path.write_text(text)
            missed += not words
            print(f"{'found ' if words else 'MISSED'} {number:2} {name}: {words[:300]}", flush=True)
    print(f"{len(numbers) - missed} of {len(numbers)} faults were found")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())

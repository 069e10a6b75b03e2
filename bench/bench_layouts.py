#!/usr/bin/env python3
"""How near do calibrated predictions come to steps of CPU ranks, and how good is the layout that they would pick?

    bench/bench_layouts.py [--memplan build/memplan] [--rounds 3] [--before 'chrt -f 10'] [--keep FOLDER] [--again FOLDER]

Records a few layouts of gpt2-small-bytes (4.9 million parameters), 16 sequences of 64 tokens a step, and trains others, of which
none is recorded for the calibration, in turns: data, tensor and pipeline parallel ranks, one to four of them, all schedules,
micro-batches, and recomputation. Calibrates from the recordings, predicts the others, and prints of each the step (the median over
rounds), how far the slowest round is from the fastest, the prediction and its error; of all, the median and worst error, how many
are within 15%, and how much slower the layout with the shortest prediction is than the fastest that was run. On a machine with
neighbours, --before puts a command before each run, such as one that asks for real-time priority. --keep leaves recordings and steps
in a folder, and --again predicts from there."""
import argparse
import contextlib
import json
import os
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile

STEP = "gpt2-small-bytes --seq-len 64 --global-batch 16"
WARM_STEPS, STEPS = 2, 8
GOAL = 0.15

CALIBRATED = [
    "--micro-batch 4",
    "--micro-batch 1",
    "--dp 2 --micro-batch 2",
    "--tp 2 --micro-batch 4",
    "--pp 2 --micro-batch 1",
]

PREDICTED = [
    "--micro-batch 2",
    "--micro-batch 8",
    "--micro-batch 16",
    "--micro-batch 4 --recompute selective",
    "--micro-batch 4 --recompute full",
    "--micro-batch 8 --recompute 0-2=norm1+gelu,3-5=full",
    "--dp 2 --micro-batch 1",
    "--dp 2 --micro-batch 4",
    "--dp 2 --micro-batch 8",
    "--dp 2 --micro-batch 4 --zero 1",
    "--dp 2 --micro-batch 4 --recompute full",
    "--dp 2 --micro-batch 2 --bucket-bytes 1MiB",
    "--dp 4 --micro-batch 1",
    "--dp 4 --micro-batch 4",
    "--dp 4 --micro-batch 2 --zero 1",
    "--tp 2 --micro-batch 1",
    "--tp 2 --micro-batch 2",
    "--tp 2 --micro-batch 8",
    "--tp 2 --micro-batch 4 --sequence-parallel",
    "--tp 2 --micro-batch 4 --recompute full",
    "--tp 4 --micro-batch 4",
    "--tp 4 --micro-batch 8",
    "--pp 2 --micro-batch 4",
    "--pp 2 --micro-batch 2 --pipeline-schedule gpipe",
    "--pp 2 --micro-batch 1 --pipeline-schedule zb-h1",
    "--pp 2 --micro-batch 2 --pipeline-schedule zb-h1",
    "--pp 2 --micro-batch 2 --virtual-stages 3",
    "--pp 2 --micro-batch 2 --stage-layers 4,2",
    "--pp 2 --micro-batch 2 --recompute full",
    "--pp 3 --micro-batch 1",
    "--pp 3 --micro-batch 2",
    "--pp 4 --micro-batch 1 --stage-layers 2,1,2,1",
    "--pp 4 --micro-batch 2 --stage-layers 1,2,2,1",
    "--dp 2 --tp 2 --micro-batch 4",
    "--dp 2 --pp 2 --micro-batch 1",
    "--dp 2 --pp 2 --micro-batch 2",
    "--tp 2 --pp 2 --micro-batch 2",
    "--tp 2 --pp 2 --micro-batch 4 --recompute selective",
]


def call(options, *words, before=""):
    line = shlex.split(before) + [options.memplan, *words]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"bench_layouts: {shlex.join(line)}\n{done.stderr}")
    return done.stdout


def record(options, layout, recording):
    call(options, "train", *STEP.split(), *layout.split(), "--data", "random", "--steps", str(STEPS), "-q", "-o", recording,
         before=options.before)


def predict(options, layout, calibration):
    words = ["predict", *STEP.split(), *layout.split(), "--calibration", calibration, "--json", "-q"]
    return json.loads(call(options, *words))["step_seconds"]


def step_seconds(options, layout, recording):
    """Of one run: the mean of its steps without the first, the fastest and the slowest. A step lasts as long as in the rank where it
    lasts longest: where ranks outnumber cores, those that have none yet begin late."""
    record(options, layout, recording)
    with contextlib.closing(sqlite3.connect(recording)) as store:
        rows = store.execute("SELECT MAX(seconds) FROM steps WHERE step >= ? GROUP BY step", (WARM_STEPS,)).fetchall()
    os.remove(recording)
    seconds = sorted(row[0] for row in rows)
    return statistics.mean(seconds[1:-1])


def measure(options, folder, recording):
    """Recordings and runs in turns, so that whatever else the machine does meets them alike."""
    seconds = {layout: [] for layout in PREDICTED}
    for _ in range(options.rounds):
        for layout in CALIBRATED:
            record(options, layout, recording)
        for layout in PREDICTED:
            seconds[layout].append(step_seconds(options, layout, os.path.join(folder, "step.db")))
    with open(os.path.join(folder, "measured.json"), "w", encoding="utf-8") as file:
        json.dump(seconds, file, indent=1)
    return seconds


def report(seconds, predicted):
    measured = {layout: statistics.median(values) for layout, values in seconds.items()}
    spread = {layout: (max(values) - min(values)) / measured[layout] for layout, values in seconds.items()}
    errors = {layout: predicted[layout] / measured[layout] - 1 for layout in PREDICTED}
    print(f"{'layout':58} measured  spread   predicted   error")
    for layout in PREDICTED:
        print(f"{layout:58} {1e3 * measured[layout]:5.1f} ms  {spread[layout]:6.1%}   "
              f"{1e3 * predicted[layout]:5.1f} ms  {errors[layout]:+6.1%}")
    size = sorted(abs(error) for error in errors.values())
    good = sum(error <= GOAL for error in size)
    pick, fastest = min(predicted, key=predicted.get), min(measured, key=measured.get)
    print(f"{len(size)} layouts: median error {statistics.median(size):.1%}, worst {size[-1]:.1%}, "
          f"{good} within {GOAL:.0%}")
    print(f"spread of a layout's rounds: median {statistics.median(spread.values()):.1%}, worst {max(spread.values()):.1%}")
    print(f"shortest prediction: {pick}: {measured[pick] / measured[fastest] - 1:.1%} slower than the fastest, {fastest}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memplan", default="build/memplan")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default="")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--again", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.again or options.keep or scratch
        os.makedirs(folder, exist_ok=True)
        recording = os.path.join(folder, "run.db")
        if options.again:
            with open(os.path.join(folder, "measured.json"), encoding="utf-8") as file:
                measured = json.load(file)
        else:
            measured = measure(options, folder, recording)
        calibration = os.path.join(folder, "calibration.json")
        call(options, "calibrate", recording, "--all", "-q", "-o", calibration)
        report(measured, {layout: predict(options, layout, calibration) for layout in PREDICTED})


main()

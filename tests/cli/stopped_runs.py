"""What SIGINT, SIGTERM and a reader that goes do to `memplan train` and `profile`: the checkpoint, the recording, the words and the exit status.

    MEMPLAN=build/memplan python3 tests/cli/stopped_runs.py [FILTER]

The output of a run is a pipe with room for a few dozen steps, read slowly: so the run cannot be done before the signal comes,
however fast the machine."""
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

MEMPLAN = os.environ["MEMPLAN"]
TINY = "gpt2-tiny --data corpus.txt --seq-len 16 --micro-batch 1 --threads 2 --json".split()
STEPS = 200
PIPE_BYTES = 4096
PAIR_S = 0.1  # what comes sooner after the first signal is the same request
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def say(*arguments):
    done = subprocess.run([MEMPLAN, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(command, *arguments):
    process = subprocess.Popen([MEMPLAN, command, *TINY, "--steps", str(STEPS), *arguments], bufsize=0,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def first_line(process):
    line = b""
    while not line.endswith(b"\n"):
        byte = process.stdout.read(1)
        assert byte, process.stderr.read()
        line += byte
    return line


def stopped(command, number, *arguments):
    """A run that gets the signal after its first step: its lines, what it said and its exit status."""
    process = start(command, *arguments)
    line = first_line(process)
    process.send_signal(number)
    rest, said = process.communicate(timeout=120)
    return [json.loads(text) for text in (line + rest).splitlines()], said.decode(), process.returncode


def without_times(lines):
    return [{key: line[key] for key in ("step", "loss", "grad_norm")} for line in lines if "loss" in line]


def whole_run(*arguments):
    lines = [json.loads(text) for text in say("train", *TINY, "--steps", str(STEPS), "-q", *arguments).splitlines()]
    assert lines[-1]["done"] is True, lines[-1]
    return without_times(lines)


def assert_resumes(number, name, status, *layout):
    lines, said, code = stopped("train", number, "--checkpoint", "ckpt", "-o", "run.db", *layout)
    steps = len(lines) - 1
    assert code == status, (code, said)
    assert 1 <= steps < STEPS and lines[-1]["done"] is False and lines[-1]["steps"] == steps, lines[-1]
    assert f"stopped by {name} after step {steps} of {STEPS}; go on with --resume ckpt" in said, said
    with open("ckpt/checkpoint.json", encoding="utf-8") as file:
        assert json.load(file)["step"] == steps
    ranks = len(lines[-1]["peak_bytes"])
    store = sqlite3.connect("run.db")
    assert store.execute("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL").fetchone() == (1,)
    assert store.execute("SELECT rank, note FROM notes ORDER BY rank").fetchall() == [
        (rank, f"stopped by {name} after step {steps}") for rank in range(ranks)]
    assert store.execute("SELECT rank, count(*) FROM steps GROUP BY rank").fetchall() == [
        (rank, steps) for rank in range(ranks)]
    store.close()
    report = say("report", "run.db")
    assert f"ended early, after {steps} of {STEPS} steps" in report and f"stopped by {name}" in report, report
    rest = whole_run("--resume", "ckpt", *layout)
    assert without_times(lines) + rest == whole_run(*layout)


@test
def one_rank_stopped_by_sigint_goes_on_to_the_same_losses():
    assert_resumes(signal.SIGINT, "SIGINT", 130)


@test
def two_replicas_stopped_by_sigint_go_on_to_the_same_losses():
    assert_resumes(signal.SIGINT, "SIGINT", 130, "--dp", "2")


@test
def two_stages_stopped_by_sigterm_go_on_to_the_same_losses():
    assert_resumes(signal.SIGTERM, "SIGTERM", 143, "--pp", "2", "--global-batch", "2")


@test
def profile_stops_too_and_its_recording_can_be_read():
    lines, said, code = stopped("profile", signal.SIGTERM, "-o", "run.db")
    assert code == 143 and f"stopped by SIGTERM after step {len(lines) - 1} of {STEPS}\n" in said, said
    assert not os.path.exists("ckpt")
    say("compare", "run.db", "run.db")


@test
def a_run_whose_reader_has_gone_ends_with_its_checkpoint_and_a_finished_recording():
    process = start("train", "--checkpoint", "ckpt", "-o", "run.db")
    first_line(process)
    process.stdout.close()
    said = process.stderr.read().decode()
    assert process.wait(timeout=120) == 2 and "the reader gone?" in said, said
    with open("ckpt/checkpoint.json", encoding="utf-8") as file:
        steps = json.load(file)["step"]
    assert 1 <= steps < STEPS
    assert f"stopped by a closed stdout after step {steps} of {STEPS}; go on with --resume ckpt" in said, said
    store = sqlite3.connect("run.db")
    assert store.execute("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL").fetchone() == (1,)
    assert store.execute("SELECT max(step) FROM steps").fetchone() == (steps - 1,)
    store.close()


@test
def a_pair_of_signals_is_one_request():
    process = start("train")
    first_line(process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (130, 143), process.returncode


@test
def a_second_request_ends_the_run_at_once():
    for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
        process = start("train", "--checkpoint", "ckpt")
        first_line(process)
        # Nothing is read meanwhile, and a line that finds no room holds its step up: the run waits here, in the middle of one.
        time.sleep(5 * PAIR_S)
        process.send_signal(first)
        time.sleep(5 * PAIR_S)
        assert process.poll() is None
        process.send_signal(second)
        assert process.wait(timeout=60) == -second, process.returncode
        assert not os.path.exists("ckpt/checkpoint.json")
        process.communicate()


@test
def a_signal_that_the_parent_ignores_stays_ignored():
    process = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$@"', "sh", MEMPLAN, "train", *TINY, "--steps", str(STEPS)],
                               bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first_line(process)
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=120)
    assert process.returncode == 0 and json.loads(rest.splitlines()[-1])["steps"] == STEPS, said


@test
def other_commands_die_of_it_as_ever():
    store = start("train", "-o", "run.db")
    first_line(store)
    watch = subprocess.Popen([MEMPLAN, "watch", "run.db"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        watch.stdout.read(1)
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(timeout=60) == -signal.SIGTERM, watch.returncode
    finally:
        watch.kill()
        watch.communicate()
        store.kill()
        store.communicate()


def run(function):
    with tempfile.TemporaryDirectory(prefix="memplan-stop.") as folder:
        os.chdir(folder)
        with open("corpus.txt", "w", encoding="utf-8") as corpus:
            corpus.writelines(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(400))
        try:
            function()
        finally:
            os.chdir("/")


def main():
    # A shell's background jobs ignore SIGINT, and so would the runs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    failed, chosen = 0, [t for t in TESTS if wanted in t.__name__]
    for function in chosen:
        sentence = function.__name__.replace("_", " ")
        try:
            run(function)
            print(f"ok    {sentence}", flush=True)
        except Exception:  # whatever it is, the others are run too
            failed += 1
            print(f"FAIL  {sentence}\n{traceback.format_exc()}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main())

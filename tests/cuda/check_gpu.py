#!/usr/bin/env python3
"""What only a GPU can show, part by part, into one JSON file: bench/results/DEVICE.json. It is `make check-gpu`.

Each figure is written as soon as it is known, so that a run that is cut short, by whatever, loses the part at work at most; each
part has a time of its own, after which it fails alone. One that fails does not stop the others. A part that passed before, on the
same GPU, driver and commit, is kept: the next run goes on where this one was. The first tell whether anything works, the next what
it is worth. Settings, in the environment:

    BUILD=build     where things are built
    BUDGET=340      seconds for everything; parts for which no time is left are skipped, and done by the next run
    PREBUILT=1      use what BUILD holds, from another machine perhaps, and build nothing
    RESULTS=bench/results  where the file goes
    FRESH=1         keep nothing of earlier runs
    ONLY=PIECE      only the parts whose name contains it
    TORCH_PYTHON=python3   the interpreter that may have PyTorch
    EMULATED=1      over the doubles of tests/cuda, with tiny models: that the script runs, and nothing of a GPU
"""
import datetime
import functools
import json
import os
import platform
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

START = time.monotonic()
EMULATED = os.environ.get("EMULATED", "") not in ("", "0")
PREBUILT = EMULATED or os.environ.get("PREBUILT", "") not in ("", "0")
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
MEMPLAN = os.path.join(BUILD, "memplan")
BUDGET_S = float(os.environ.get("BUDGET", "340"))
CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")
TORCH_PYTHON = os.environ.get("TORCH_PYTHON", "python3")
MARGIN_BYTES = 512 << 20  # what a run leaves to the driver (docs/gpus.md)
WARM_STEPS = 3  # the first loads kernels, the second is recorded, the third is the recording's first
SAID_LINES, SAID_BYTES = 60, 6000  # of a command that failed, from each of its outputs
FOLDER = tempfile.mkdtemp(prefix="memplan-gpu.")


class Failed(Exception):
    """A part's answer is no; with the last that the command at work had said, for whoever is not there to ask again."""

    def __init__(self, sentence, said=""):
        super().__init__(sentence)
        self.said = said


class Ended(BaseException):
    """Somebody ends the whole run: no part's own affair."""


class Skipped(Exception):
    """A part cannot run here."""


part_end = float("inf")  # when the part at work has had its time


def remaining_s():
    return min(BUDGET_S, part_end - START) - (time.monotonic() - START)


# ---------------------------------------------------------------------------------------------------------- commands

commands = []  # of the part at work


def telling_line(text):
    """The first that names an error, as compilers and make's own scripts do, or the last."""
    named = [line for line in text.splitlines() if re.search(r"\berror: |undefined reference|^(cuda|memplan)\b", line)]
    return named[0].strip() if named else last_line(text)


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no word of why"


def ending_of(*texts):
    """The last lines of what a command said, which may be bytes where it was cut short, or None."""
    decoded = [text.decode(errors="replace") if isinstance(text, bytes) else text or "" for text in texts]
    return "\n".join("\n".join(text.rstrip().splitlines()[-SAID_LINES:])[-SAID_BYTES:] for text in decoded).strip()


def ended_by(status):
    """status 2, or signal SIGSEGV."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def run(argv, statuses=(0,), env=None):
    """Runs a command within the budget; other exit statuses than `statuses` fail the part."""
    commands.append(" ".join(argv))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=max(1, remaining_s()), check=False,
                              env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no time was left for it: {commands[-1]}", ending_of(late.stdout, late.stderr)) from late
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from error
    if done.returncode not in statuses:
        raise Failed(f"{ended_by(done.returncode)}: {commands[-1]}: {telling_line(done.stderr or done.stdout)}",
                     ending_of(done.stdout, done.stderr))
    return done


def memplan(*arguments, statuses=(0,)):
    return run([MEMPLAN, *map(str, arguments)], statuses)


def ask_json(*arguments, statuses=(0,)):
    return json.loads(memplan(*arguments, "--json", "--quiet", statuses=statuses).stdout)


def train(model, *arguments):
    """Its steps, and the line that closes. A step that was to be recorded as a graph and was not is a failure."""
    done = memplan("train", model, "--data", "random", "--json", *arguments)
    unrecorded = [line for line in done.stderr.splitlines() if "steps are not recorded" in line]
    ensure(not unrecorded, "; ".join(unrecorded))
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    return parsed[:-1], parsed[-1]


@functools.lru_cache(maxsize=None)
def predict(model, *arguments):
    return ask_json("predict", model, "--device", "cuda", *arguments, statuses=(0, 1))


def query(database, sql):
    with sqlite3.connect(database) as connection:
        return connection.execute(sql).fetchall()


@functools.lru_cache(maxsize=None)
def torch_version():
    """Where PyTorch sees a GPU; asking takes seconds."""
    return tool(TORCH_PYTHON, "-c", "import torch; assert torch.cuda.is_available(); print(torch.__version__)")


def tool(*argv):
    """What a command prints, or None where there is no such command."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ensure(condition, sentence):
    if not condition:
        raise Failed(sentence)


# ------------------------------------------------------------------------------------------------------- the machine


def nvcc():
    beside = os.path.join(CUDA_HOME, "bin", "nvcc")
    return beside if os.access(beside, os.X_OK) else shutil.which("nvcc")


def reason_to_skip():
    if EMULATED:
        library = os.path.join(BUILD, "libmemplan_cuda_emulated.so")
        return None if os.path.exists(library) else f"{library} is not built (no CUDA headers?)"
    if tool("nvidia-smi", "-L") is None and not os.path.exists("/dev/nvidiactl"):
        return "no NVIDIA GPU on this machine (no nvidia-smi that answers, no /dev/nvidiactl)"
    if not nvcc() and not PREBUILT:
        return f"no nvcc on the PATH or in {CUDA_HOME}/bin; install the CUDA toolkit or set CUDA_HOME"
    return None


def ask_smi(what):
    """A field of nvidia-smi, of the GPU that CUDA calls the first; that program knows all, whatever CUDA_VISIBLE_DEVICES shows."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    return tool("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", "-i", first)


def capability():
    """90: of the first GPU; None where nvidia-smi does not say."""
    answer = ask_smi("compute_cap")
    return answer.replace(".", "") if answer and re.fullmatch(r"\d+\.\d+", answer) else None


def architectures():
    """nvcc's options for this GPU: those that BUILD's kernels were built with, if that serves, so that nothing is built anew. Machine
    code runs on GPUs of its generation that are no older."""
    code = capability()
    try:
        with open(os.path.join(BUILD, "cuda.stamp"), encoding="utf-8") as file:
            built = " ".join(re.findall(r"-gencode \S+|-arch=\S+", file.read()))
    except OSError:
        built = ""
    if not code or any(int(one) // 10 == int(code) // 10 and int(one) <= int(code) for one in re.findall(r"\bsm_(\d+)", built)):
        return built
    return f"-arch=sm_{code}"


def make(*targets):
    """In an environment of its own: the make that runs this script has options of its own."""
    environment = {name: "" for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL") if name in os.environ}
    settings = [f"BUILD={BUILD}"] + ([f"CUDA_CODE={architectures()}"] if architectures() else [])
    return run(["env", *(f"-u{name}" for name in environment), "make", f"-j{os.cpu_count()}", *settings, *targets])


def commit():
    """3b8240b, or 3b8240b+changes; figures of other runs are no changes."""
    number = tool("git", "rev-parse", "--short", "HEAD")
    changed = tool("git", "diff", "--name-only", "HEAD", "--", ".", ":!bench/results")
    return f"{number}+changes" if number and changed else number


def machine():
    """Of the GPU and all that has a version; after the build, which makes memplan able to say it."""
    told = ask_json("env")
    release = re.search(r"release ([\d.]+)", tool(nvcc() or "nvcc", "--version") or "")
    return {
        "device": told.get("gpu", {}).get("name"),
        "gpu": told.get("gpu"),
        "driver": ask_smi("driver_version"),
        "nvcc": release.group(1) if release else None,
        "memplan": told["memplan"],
        "commit": commit(),
        "torch": torch_version(),
        "cpu": told["machine"],
        "system": platform.platform(),
    }


class Polled:
    """The most that nvidia-smi says is in use on the first GPU, while a command runs."""

    def __enter__(self):
        self.most_bytes, self.over = None, threading.Event()
        self.thread = threading.Thread(target=self.poll)
        if not EMULATED and shutil.which("nvidia-smi"):
            self.thread.start()
        return self

    def poll(self):
        while not self.over.wait(0.2):
            answer = ask_smi("memory.used")
            if answer and answer.isdigit():
                self.most_bytes = max(self.most_bytes or 0, int(answer) << 20)

    def __exit__(self, *_):
        self.over.set()
        if self.thread.ident:
            self.thread.join()


# ----------------------------------------------------------------------------------------------------------- settings

SMALL_MODELS = ("gpt2-tiny", "llama-tiny", "qwen3-tiny")
if EMULATED:
    LEDGER = ("gpt2-tiny", "--seq-len", 16, "--precision", "bf16")
    SPEED = {"gpt2-tiny": (16, 4, [(2, "none")]), "llama-tiny": (16, 4, [(1 << 24, "none"), (2, "full")])}
    WHOLE = "gpt2-tiny"
    LOSS_STEPS, LOSS_BATCH = 3, 1
else:
    LEDGER = ("gpt2-124m", "--seq-len", 1024, "--precision", "bf16")
    # Sequence length, steps, and batches with their recomputation, of which the first that fits well is taken.
    SPEED = {
        "gpt2-124m": (1024, 40, [(batch, "none") for batch in (32, 16, 8, 4, 2, 1)]),
        "gpt2-1558m": (1024, 15, [(16, "none"), (8, "none"), (4, "none"), (8, "full"), (4, "full"), (2, "full"), (1, "full")]),
    }
    WHOLE = "gpt2-1558m"
    LOSS_STEPS, LOSS_BATCH = 20, 2


def setting_of(model):
    """The options of the first batch that takes at most nine tenths of the GPU, with the batch and the length."""
    length, steps, choices = SPEED[model]
    for batch, recompute in choices:
        options = ["--precision", "bf16", "--seq-len", length, "--micro-batch", batch, "--global-batch", batch,
                   "--recompute", recompute]
        told = predict(model, *options)
        if told["needed_bytes"] <= 0.9 * told["capacity_bytes"]:
            return {"options": options, "batch": batch, "length": length, "steps": steps, "recompute": recompute,
                    "predicted": told}
    raise Skipped(f"no step of {model} fits this GPU")


def flops_per_token(model, length):
    """6 per parameter and 6 L C T for causal attention, as model/work.h counts a step."""
    told = ask_json("describe", model)
    layers = sum(len(stage["layers"]) for stage in told["stages"])
    hidden = next(t["dims"][1] for t in told["tensors"] if t["name"] == "embed wte weight")
    return 6 * told["parameters"] + 6 * layers * hidden * length


def spread(seconds):
    return {"median_s": statistics.median(seconds), "least_s": min(seconds), "most_s": max(seconds),
            "steps": len(seconds)}


def seconds_of(steps):
    return [step["step_seconds"] for step in steps]


# -------------------------------------------------------------------------------------------------------------- parts

class Figures(dict):
    """Of the part at work; in the file as soon as they are set."""

    save = staticmethod(lambda: None)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.save()


parts = []  # name, sentence, seconds that it needs at least and may take at most, a function that sets figures


def part(name, sentence, least_s, most_s):
    def add(function):
        parts.append((name, sentence, least_s, most_s, function))
        return function
    return add


@part("build", "everything is built" + ("" if PREBUILT else ", kernels for this GPU's architecture"), 5, 300)
def build(figures):
    if PREBUILT:
        for name in ("memplan", "run-cuda-tests" if EMULATED else "run-gpu-tests"):
            ensure(os.path.exists(os.path.join(BUILD, name)), f"{name} is not in {BUILD}")
        return
    make("all", os.path.join(BUILD, "libmemplan_cuda.so"), "gpu-tests")
    figures["architecture"], figures["built_for"] = capability(), architectures()


@part("tests", "the tests of kernels, products, attention and the device pass", 10, 120)
def tests(figures):
    program = "run-cuda-tests" if EMULATED else "run-gpu-tests"
    filters = ["cuda_scratch_in_ledger", "cuda_device_recording"] if EMULATED else []
    done = run([os.path.join(BUILD, program), "--jobs", str(min(8, os.cpu_count())), *filters], statuses=(0, 1))
    print("\n".join(f"      {line}" for line in done.stdout.splitlines() if not line.startswith("ok")))
    passed, failed, skipped = map(int, re.findall(r"\d+", last_line(done.stdout))[:3])
    figures["passed"], figures["failed"], figures["skipped"] = passed, failed, skipped
    figures["failures"] = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    ensure(failed == 0 and done.returncode == 0, f"{failed} of {passed + failed} failed")


def largest_difference(one, other):
    ensure(len(one) == len(other), f"{len(one)} steps beside {len(other)}")
    return max(abs(a["loss"] - b["loss"]) for a, b in zip(one, other))


@part("losses", "20 steps on the GPU have the CPU's losses; recorded steps have the very bits of steps one by one", 10, 90)
def losses(figures):
    failures, said = [], ""
    for model in SMALL_MODELS:
        for precision, tolerance in (("fp32", 1e-5), ("bf16", 1e-2)):
            options = ["--precision", precision, "--seq-len", 32, "--global-batch", LOSS_BATCH, "--steps", LOSS_STEPS]
            cpu, _ = train(model, *options, "--device", "cpu")
            try:
                eager, _ = train(model, *options, "--device", "cuda", "--no-graph")
                difference = largest_difference(cpu, eager)
                figures[f"{model} {precision}"] = {"largest_difference": difference, "tolerance": tolerance}
                ensure(difference <= tolerance, f"{difference:g} from the CPU's")
                graph, _ = train(model, *options, "--device", "cuda")
                ensure(largest_difference(graph, eager) == 0, "a graph gives other bits")
            except Failed as failed:
                failures.append(f"{model} {precision}: {failed}")
                said = said or failed.said
    if failures:
        raise Failed("; ".join(failures), said)


# On several GPUs: a layout each, with as many ranks.
LAYOUTS = {"data": ["--dp", 2]}
if not EMULATED:
    LAYOUTS.update(sharded=["--dp", 2, "--zero", 1], tensor=["--tp", 2, "--sequence-parallel"], pipeline=["--pp", 2])


@part("ranks", "two ranks on two GPUs have the CPU's losses, in every kind of layout, and recorded steps the very bits", 10, 90)
def ranks(figures):
    if EMULATED:
        os.environ["DOUBLE_CUDA_DEVICES"] = "2"
    try:
        run_ranks(figures)
    finally:
        if EMULATED:
            os.environ.pop("DOUBLE_CUDA_DEVICES")


def run_ranks(figures):
    count = (ask_json("env").get("gpu") or {}).get("count", 0)
    if count < 2:
        raise Skipped(f"two GPUs are needed, and this process sees {count}")
    failures, said = [], ""
    for name, layout in LAYOUTS.items():
        options = [*layout, "--layers", 2, "--seq-len", 32, "--micro-batch", 1, "--global-batch", 4, "--steps", 6]
        try:
            cpu, _ = train("gpt2-tiny", *options, "--device", "cpu")
            eager, _ = train("gpt2-tiny", *options, "--device", "cuda", "--no-graph")
            figures[name] = {"largest_difference": largest_difference(cpu, eager), "tolerance": 1e-5}
            ensure(figures[name]["largest_difference"] <= 1e-5, f"{figures[name]['largest_difference']:g} from the CPU's")
            graph, _ = train("gpt2-tiny", *options, "--device", "cuda")
            ensure(largest_difference(graph, eager) == 0, "graphs give other bits")
        except Failed as failed:
            failures.append(f"{name}: {failed}")
            said = said or failed.said
    if failures:
        raise Failed("; ".join(failures), said)


@part("processes", "ranks that are processes under mpirun have the losses of ranks that are threads", 10, 60)
def processes(figures):
    if EMULATED:
        raise Skipped("NCCL's double connects threads only")
    count = (ask_json("env").get("gpu") or {}).get("count", 0)
    if count < 2 or not shutil.which("mpirun") or not os.path.exists(os.path.join(BUILD, "libmemplan_mpi.so")):
        raise Skipped(f"it takes mpirun, a build with MPI and two GPUs, of which this process sees {count}")
    options = ["--dp", 2, "--seq-len", 32, "--global-batch", 4, "--steps", 6]
    threads, _ = train("gpt2-tiny", *options, "--device", "cuda")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = run(["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-np", "2", MEMPLAN, "train", "gpt2-tiny", "--data", "random",
                "--json", "--device", "cuda", *map(str, options)])
    *steps, _ = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    figures["largest_difference"] = largest_difference(threads, steps)
    ensure(figures["largest_difference"] <= 1e-5, f"{figures['largest_difference']:g} apart")


def padded(model):
    """A vocabulary that is a multiple of 64, where the model's is none: rows of logits then begin at whole packs."""
    told = ask_json("describe", model)
    vocabulary = next(t["dims"][0] for t in told["tensors"] if t["name"] == "embed wte weight")
    return ["--vocab", (vocabulary + 63) // 64 * 64] if vocabulary % 64 else []


def speed(figures, model):
    setting = setting_of(model)
    figures.update(batch=setting["batch"], seq_len=setting["length"], precision="bf16", recompute=setting["recompute"],
                   predicted_peak_bytes=setting["predicted"]["peak_bytes"])
    common = [*setting["options"], "--device", "cuda", "--steps", setting["steps"]]
    figures["peak_flops_per_s"] = (ask_json("env").get("gpu") or {}).get("bf16_flops_per_second")
    flops = flops_per_token(model, setting["length"])
    # The simpler way first: whatever comes of graphs, there is a figure.
    for kind, options in (("no_graph", ["--no-graph"]), ("graph", [])):
        steps, closing = train(model, *common, *options)
        figures[kind] = spread(seconds_of(steps)[WARM_STEPS:])
        rate = setting["batch"] * setting["length"] / figures[kind]["median_s"]
        figures.update(peak_bytes=closing["peak_bytes"][0], last_loss=steps[-1]["loss"], flops_per_s=flops * rate,
                       mfu=flops * rate / figures["peak_flops_per_s"] if figures["peak_flops_per_s"] else None)
        figures["tokens_per_s"] = rate
    if padded(model):
        steps, _ = train(model, *common, *padded(model))
        figures["padded_vocabulary"] = {**spread(seconds_of(steps)[WARM_STEPS:]), "options": padded(model)}


def add_speed(model, least_s, most_s):
    part(f"speed {model}", f"tokens/s, MFU and peak of {model} in bf16; with and without a graph",
         least_s, most_s)(lambda figures: speed(figures, model))


for number, name_of_model in enumerate(SPEED):
    add_speed(name_of_model, (15, 25)[number], (80, 150)[number])


@part("ledger", "predicted bytes are those of the ledger and of the driver's calls, in every role", 10, 60)
def ledger(figures):
    options = [*LEDGER, "--micro-batch", 2, "--global-batch", 2]
    told = predict(*options)
    predicted = told["peak_bytes"] + told["stages"][0]["runtime"]
    _, closing = train(*options, "--device", "cuda", "--steps", 3, "--no-graph")
    figures["predicted_bytes"], figures["peak_bytes"] = predicted, closing["peak_bytes"]
    ensure(closing["peak_bytes"] == [predicted], f"{closing['peak_bytes']} bytes measured, {predicted} predicted")
    database = os.path.join(FOLDER, "ledger.db")
    memplan("profile", LEDGER[0], "--data", "random", "--device", "cuda", "--steps", 3, "-o", database, "--quiet",
            *options[1:])
    rows = query(database, "SELECT role, predicted_bytes, measured_bytes FROM predicted_vs_measured")
    figures["roles"] = {role: {"predicted": told, "measured": measured} for role, told, measured in rows}
    figures["runtime"] = dict(query(database, "SELECT name, bytes FROM runtime_memory"))
    figures["notes"] = [note for note, in query(database, "SELECT note FROM notes")]
    left, events = query(database, "SELECT COALESCE(SUM(bytes), 0), COUNT(*) FROM driver_events")[0]
    figures["driver_events"], figures["driver_bytes_left"] = events, left
    wrong = [row for row in rows if row[1] != row[2]]
    ensure(len(rows) == 8 and not wrong, f"roles whose bytes are not as predicted: {wrong or rows}")
    ensure(not any("misses some" in note for note in figures["notes"]), "the driver's ledger and the device's differ")


@part("whole", "predicted use of the whole GPU is within 2% of the driver's figure", 15, 90)
def whole(figures):
    setting = setting_of(WHOLE)
    told = setting["predicted"]
    total = ask_json("env")["gpu"]["total_bytes"]
    before = total - told["capacity_bytes"] - MARGIN_BYTES
    database = os.path.join(FOLDER, "whole.db")
    with Polled() as polled:
        memplan("profile", WHOLE, "--data", "random", "--device", "cuda", "--policy", "arena", "--steps", 4,
                "--event-steps", 1, "-o", database, "--quiet", *setting["options"])
    beside, = query(database, "SELECT SUM(bytes) FROM runtime_memory")[0]
    tensors, = query(database, "SELECT MAX(reserved_peak_bytes) FROM ranks")[0]
    predicted, measured = before + told["needed_bytes"], beside + tensors
    error = predicted / measured - 1
    figures.update(model=WHOLE, batch=setting["batch"], predicted_bytes=predicted, measured_bytes=measured, error=error,
                   in_use_before_bytes=before, nvidia_smi_bytes=polled.most_bytes)
    figures["runtime"] = dict(query(database, "SELECT name, bytes FROM runtime_memory"))
    ensure(abs(error) <= 0.02 or EMULATED, f"{predicted} predicted, {measured} measured: {100 * error:.2f}%")


def fits(batch):
    return predict(*LEDGER, "--micro-batch", batch, "--global-batch", batch)["fits"]


@part("boundary", "the largest batch that is predicted to fit runs, and the next is refused at launch", 15, 90)
def boundary(figures):
    if EMULATED:  # room for a few sequences: 440 MiB are the context's, 512 the margin
        os.environ["DOUBLE_CUDA_MEMORY"] = "985MiB"
    predict.cache_clear()
    try:
        find_boundary(figures)
    finally:
        predict.cache_clear()
        os.environ.pop("DOUBLE_CUDA_MEMORY", None)


def find_boundary(figures):
    ensure(fits(1), f"not even one sequence of {LEDGER[0]} fits")
    batch = 1
    while fits(2 * batch):
        batch *= 2
    step = batch // 2
    while step:
        batch += step if fits(batch + step) else 0
        step //= 2
    figures["model"], figures["largest_batch"] = LEDGER[0], batch
    options = [*LEDGER, "--data", "random", "--device", "cuda", "--steps", 3, "--json"]
    with Polled() as polled:
        memplan("train", *options, "--quiet", "--micro-batch", batch, "--global-batch", batch)
    figures["nvidia_smi_bytes"] = polled.most_bytes
    refused = memplan("train", *options, "--micro-batch", batch + 1, "--global-batch", batch + 1, statuses=(0, 1, 2))
    ensure(refused.returncode == 1 and not refused.stdout and "does not fit" in refused.stderr,
           f"a batch of {batch + 1} ended with status {refused.returncode}: {last_line(refused.stderr)}")
    figures["refusal"] = last_line(refused.stderr)


def recording_cost(model, setting, policy):
    """Half of the steps are recorded, of one run, so that all else is the same."""
    half = max(2, setting["steps"] // 2)
    database = os.path.join(FOLDER, f"{model}-{policy}.db")
    memplan("profile", model, "--data", "random", "--device", "cuda", "--policy", policy, "--steps", 2 * half,
            "--event-steps", half, "-o", database, "--quiet", *setting["options"])
    seconds = [value for value, in query(database, "SELECT seconds FROM steps ORDER BY step")]
    recorded, plain = seconds[1:half], seconds[half + 1:]
    return {"recorded": spread(recorded), "not_recorded": spread(plain),
            "cost": statistics.median(recorded) / statistics.median(plain) - 1}


def recording(figures, model):
    setting = setting_of(model)
    for policy in ("arena", "tensor"):
        figures[policy] = recording_cost(model, setting, policy)


def add_recording(model, least_s, most_s):
    part(f"recording {model}", f"what recording costs a step of {model}, in one arena and tensor by tensor",
         least_s, most_s)(lambda figures: recording(figures, model))


def torch_part(figures, model, compiled):
    if not torch_version():
        raise Skipped(f"{TORCH_PYTHON} has no PyTorch that sees a GPU")
    setting = setting_of(model)
    argv = [TORCH_PYTHON, "bench/bench_torch.py", "--device", "cuda", "--model", model, "--batch", str(setting["batch"]),
            "--seq-len", str(setting["length"]), "--steps", str(setting["steps"]), "--json"]
    figures.update(json.loads(last_line(run(argv + (["--compile"] if compiled else [])).stdout)))


def add_torch(model, compiled, least_s, most_s):
    kind = "compiled" if compiled else "eager"
    part(f"torch {kind} {model}", f"PyTorch's tokens/s and peak for the same step of {model}, {kind}",
         least_s, most_s)(lambda figures: torch_part(figures, model, compiled))


# Small models first: they say most in least time.
for number, name_of_model in enumerate(SPEED):
    add_recording(name_of_model, (15, 25)[number], (60, 100)[number])
    add_torch(name_of_model, False, (15, 25)[number], (60, 100)[number])
    add_torch(name_of_model, True, (40, 80)[number], (120, 180)[number])


# ------------------------------------------------------------------------------------------------------------- results


class Results:
    """The JSON file; for the emulation one that is thrown away. Everything is written anew after each part, by
    way of a file beside it."""

    def __init__(self, about):
        self.about = about
        folder = os.environ.get("RESULTS") or (FOLDER if EMULATED else "bench/results")
        name = re.sub(r"[^A-Za-z0-9]+", "-", about["device"] or "unknown").strip("-")
        self.path = os.path.join(folder, f"{name}.json")
        self.document = {"about": about, "parts": {}}
        os.makedirs(folder, exist_ok=True)
        if not os.environ.get("FRESH"):
            self.keep_earlier()

    def keep_earlier(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                earlier = json.load(file)
        except (OSError, ValueError):
            return
        if all(earlier["about"].get(key) == self.about.get(key) for key in ("device", "driver", "commit", "torch")):
            kept = {name: row for name, row in earlier["parts"].items() if row["status"] == "passed"}
            self.document["parts"] = kept

    def is_done(self, name):
        return name in self.document["parts"] and name != "build"

    def write(self, name, row):
        """Of a part that is done, or is being done."""
        self.document["parts"][name] = row
        self.document["about"]["seconds"] = round(time.monotonic() - START, 1)
        beside = self.path + ".part"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(self.document, file, indent=2)
            file.write("\n")
        os.replace(beside, self.path)


def verdict_of(sentence, least_s, function, row):
    """Runs the part; completes its row, and returns the line that says how it went."""
    try:
        if remaining_s() < (0 if EMULATED else least_s):
            raise Skipped(f"no time is left of {BUDGET_S:.0f} s; run it again to go on")
        function(row["figures"])
        row["status"] = "passed"
        return f"ok    {sentence}"
    except Skipped as skipped:
        row.update(status="skipped", reason=str(skipped))
        return f"skip  {sentence}: {skipped}"
    except Failed as failed:
        row.update(status="failed", reason=failed.args[0], said=failed.said)
        said = "".join(f"\n      {line}" for line in failed.said.splitlines())
        return f"FAIL  {sentence}: {failed.args[0]}{said}"
    except Exception as error:  # an answer that has not the form expected: this part's failure, not the others'
        row.update(status="failed", reason=repr(error))
        return f"FAIL  {sentence}: {error!r}"


def run_part(results, name, sentence, least_s, most_s, function):
    """Its row, in the file as it grows where there is one already."""
    global part_end
    commands.clear()
    begin = time.monotonic()
    part_end = begin + most_s
    row = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "status": "begun",
           "figures": Figures(), "commands": commands}
    if results:
        row["figures"].save = lambda: results.write(name, row)
        results.write(name, row)
    try:
        line = verdict_of(sentence, least_s, function, row)
    finally:
        part_end = float("inf")
        row.update(seconds=round(time.monotonic() - begin, 1), commands=list(commands))
        if results:
            results.write(name, row)
    head, *said = line.split("\n")
    print("\n".join([f"{head} ({row['seconds']} s)", *said]), flush=True)
    return row


def print_aims(document):
    """What was hoped for, beside what came out: no verdict."""
    rows = {name: row["figures"] for name, row in document["parts"].items() if row["status"] == "passed"}
    for model in SPEED:
        ours = rows.get(f"speed {model}")
        if not ours:
            continue
        mfu = f"{100 * ours['mfu']:.1f}%" if ours["mfu"] else "unknown, as the GPU's rate is"
        print(f"note  {model}: {ours['tokens_per_s']:.0f} tokens/s, MFU {mfu}; {ours['peak_bytes'] / 2**30:.2f} GiB; step"
              f" {1e3 * ours['graph']['median_s']:.2f} ms, {1e3 * ours['no_graph']['median_s']:.2f} without a graph")
        cost = rows.get(f"recording {model}")
        if cost:
            print(f"note  {model}: recording {100 * cost['arena']['cost']:+.1f}%, tensor by tensor"
                  f" {100 * cost['tensor']['cost']:+.1f}%")
        for kind in ("eager", "compiled"):
            torch = rows.get(f"torch {kind} {model}")
            if torch:
                print(f"note  {model}: PyTorch {kind} {torch['tokens_per_s']:.0f} tokens/s,"
                      f" {torch['peak_bytes'] / 2**30:.2f} GiB; memplan has"
                      f" {ours['tokens_per_s'] / torch['tokens_per_s']:.2f} of its speed")


def close(statuses):
    counts = [statuses.count(status) for status in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*counts))
    sys.exit(1 if counts[1] else 0)


def end(number, _):
    raise Ended(f"signal {number}")


def main():
    only = os.environ.get("ONLY", "")
    reason = reason_to_skip()
    if reason:
        print(f"skip  check-gpu: {reason}")
        close(["skipped"])
    if EMULATED:
        os.environ["MEMPLAN_CUDA_LIBRARY"] = os.path.join(BUILD, "libmemplan_cuda_emulated.so")
        os.environ.update(OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    signal.signal(signal.SIGTERM, end)
    first, *others = parts
    built = run_part(None, *first)
    statuses = [built["status"]]
    about = {"emulated": EMULATED, "command": "make check-gpu", "budget_s": BUDGET_S}
    try:
        ensure(built["status"] == "passed", "what was built cannot be asked")
        about = {**machine(), **about}
    except Failed as failed:
        print(f"FAIL  check-gpu: {failed}")
        name = ask_smi("name")
        Results({"device": name, "commit": commit(), **about}).write("build", built)
        close(statuses + ["failed"])
    results = Results(about)
    results.write("build", built)
    for name, sentence, *rest in others:
        if only not in name:
            continue
        if results.is_done(name):
            print(f"ok    {sentence} (kept from an earlier run)")
        else:
            run_part(results, name, sentence, *rest)
        statuses.append(results.document["parts"][name]["status"])
    print_aims(results.document)
    print("note  emulated: no figure here is a GPU's" if EMULATED else f"note  figures are in {results.path}")
    close(statuses)


if __name__ == "__main__":
    try:
        main()
    except Ended as why:
        print(f"FAIL  check-gpu: ended by {why}; what it had measured is in its file")
        sys.exit(1)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)

"""What a person sees while memplan works: `watch`, and progress bars. Every test has a terminal of its own.

    MEMPLAN=build/memplan python3 tests/cli/live_views.py [FILTER]"""
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pseudo_terminal import Terminal  # noqa: E402

MEMPLAN = os.environ["MEMPLAN"]
SMALL = "gpt2-tiny --data corpus.txt --seq-len 32 --memory 4MiB --threads 1".split()
TESTS = []


class Skip(Exception):
    pass


def test(function):
    TESTS.append(function)
    return function


def memplan(*arguments, **more):
    return subprocess.run([MEMPLAN, *arguments], capture_output=True, text=True, check=False, **more)


@contextlib.contextmanager
def terminal(*arguments, **more):
    view = Terminal([MEMPLAN, *arguments], **more)
    try:
        yield view
    finally:
        view.close()


@contextlib.contextmanager
def training(*arguments, steps=1000000, name="run.db"):
    """A run in the background that has done its first steps; it may not be the file's first."""
    before = runs_in(name)
    process = subprocess.Popen([MEMPLAN, "train", *SMALL, "--steps", str(steps), "-o", name, "-q", *arguments],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(300):
            if process.poll() is not None or steps_of(name, before + 1):
                break
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(name, sql):
    with contextlib.closing(sqlite3.connect(f"file:{name}?mode=ro", uri=True)) as database:
        return database.execute(sql).fetchall()


def runs_in(name):
    return ask(name, "SELECT COUNT(*) FROM runs")[0][0] if os.path.exists(name) else 0


def steps_of(name, run):
    try:
        return ask(name, f"SELECT COUNT(*) FROM steps WHERE run_id = {run} AND rank = 0")[0][0]
    except sqlite3.Error:
        return 0


def line_of(screen, label):
    """What the page has behind a label."""
    for line in screen.lines():
        if line.startswith(f"  {label} "):
            return line[len(label) + 2:].strip()
    return ""


def step_of(screen):
    found = re.search(r"(\d+) of \d+,", line_of(screen, "step"))
    return int(found[1]) if found else -1


@test
def a_page_follows_the_run():
    with training(), terminal("watch", "run.db", "--interval", "0.1") as view:
        view.wait_for(lambda screen: step_of(screen) > 0)
        first = step_of(view.screen)
        view.wait_for(lambda screen: step_of(screen) > first + 50)
        assert view.screen.on_alternate and not view.screen.cursor_shown and view.screen.coloured
        page = view.screen.text()
        assert re.search(r"^gpt2-tiny  run 1, running for \d", page), page
        assert "left" in line_of(view.screen, "step")
        assert re.match(r"\d\.\d{4}  [▁-█]{20,}$", line_of(view.screen, "loss")), page
        assert re.match(r"[\d.]+ k?tokens/s, [\d.]+ [mu]?s a step$", line_of(view.screen, "speed")), page
        assert re.match(r"[▁-▏░]+  [\d.]+ KiB of 4.00 MiB, [\d.]+%$", line_of(view.screen, "memory")), page
        # 150 KiB of 4 MiB would be of no length, yet all roles are there.
        roles = ["parameter", "gradient", "optimizer", "activation", "input", "free"]
        assert all(line_of(view.screen, role) for role in roles), page


@test
def keys_that_mean_nothing_put_no_look_off():
    with training(), terminal("watch", "run.db", "--interval", "0.3") as view:
        view.wait_for(lambda screen: step_of(screen) > 0)
        first = step_of(view.screen)
        end = time.monotonic() + 10
        while step_of(view.screen) <= first:
            assert time.monotonic() < end, f"still at step {first} after ten seconds of keys"
            view.type(" ")
            view.read(0.05)
            time.sleep(0.05)


@test
def the_page_says_what_the_database_says():
    with training(steps=30) as run:
        run.wait()
    with terminal("watch", "run.db") as view:
        assert view.end() == 0
        page = view.screen.text()
    loss, = ask("run.db", "SELECT loss FROM steps WHERE step = 29 AND rank = 0")[0]
    assert f"{loss:.4f}" in page and "30 of 30, 100.0%" in page and "done after" in page, page
    for role, count in ask("run.db", "SELECT role, bytes FROM rank_peaks WHERE bytes >= 1024"):
        assert f"{count / 1024:.2f} KiB" in line_of(view.screen, role), (role, page)
    document = json.loads(memplan("watch", "run.db", "--once", "--json").stdout)
    peak, = ask("run.db", "SELECT peak_bytes FROM ranks")[0]
    assert document["state"] == "done" and document["steps_done"] == document["steps"] == 30
    assert document["ranks"][0]["peak_bytes"] == peak == document["ranks"][0]["predicted_bytes"]
    assert sum(document["ranks"][0]["at_peak"].values()) == peak
    assert abs(document["loss"] - loss) < 1e-6 and document["seconds_left"] == 0


@test
def events_counted_while_it_runs_are_the_ledger_s_at_the_end():
    with training("--event-steps", "0") as run:
        seen = json.loads(memplan("watch", "run.db", "--once", "--json").stdout)["ranks"][0]
        predicted = dict(ask("run.db", "SELECT role, bytes FROM predictions WHERE what = 'peak'"))
        run.kill()
    assert not seen["done"] and seen["at_peak"] == predicted, (seen, predicted)


@test
def the_page_fits_any_window():
    with training("--dp", "2"), terminal("watch", "run.db", "--interval", "0.1") as view:
        view.wait_for_text("rank    steps")
        for columns, rows in ((60, 24), (40, 12), (20, 5), (200, 50), (80, 24)):
            view.resize(columns, rows)
            view.wait_for(lambda screen, width=columns: step_of(screen) > 0 or width < 40)
            before = len(view.bytes)
            view.wait_for(lambda _, before=before: len(view.bytes) > before + 400)
            assert view.screen.wrapped == 0, view.screen.text()
            assert view.screen.lines()[0].startswith("gpt2-tiny  run 1"), view.screen.text()
        assert "predicted" not in view.screen.text()


def leave(act, wanted):
    """Starts a view, leaves it in some way; afterwards all must be as before, and the run go on."""
    with training() as run, terminal("watch", "run.db") as view:
        view.wait_for(lambda screen: screen.on_alternate and step_of(screen) > 0)
        assert view.modes() != view.before
        act(view)
        status = view.end()
        assert status == wanted, f"status {status}, expected {wanted}"
        assert view.is_sane(), (view.screen.on_alternate, view.screen.cursor_shown, view.modes(), view.before)
        assert run.poll() is None, run.stderr.read()
        return view.screen.text()


@test
def q_leaves_the_page_and_its_last_state_behind():
    assert re.search(r"step .* left", leave(lambda view: view.type("q"), 0))


@test
def ctrl_c_leaves():
    leave(lambda view: view.type("\x03"), 0)


@test
def a_signal_or_a_crash_gives_the_terminal_back():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV, signal.SIGABRT):
        leave(lambda view, number=number: view.kill(number), -number)


@test
def an_error_gives_the_terminal_back():
    with training(), terminal("watch", "run.db", "--interval", "0.1") as view:
        view.wait_for(lambda screen: screen.on_alternate and step_of(screen) > 0)
        os.rename("run.db", "gone.db")
        assert view.end() == 2 and view.is_sane()
        assert "memplan: run.db: No such file or directory" in view.screen.text(), view.screen.text()


@test
def ctrl_z_gives_the_terminal_back_and_fg_takes_it_again():
    with training():
        shell = Terminal(["bash", "--norc", "--noediting", "-i"], PS1="prompt$ ", INPUTRC="/dev/null")
        try:
            shell.wait_for_text("prompt$")
            before = shell.modes()
            shell.type(f"{MEMPLAN} watch run.db --interval 0.1\n")
            shell.wait_for(lambda screen: screen.on_alternate and step_of(screen) > 0)
            shell.type("\x1a")
            shell.wait_for(lambda screen: not screen.on_alternate and "Stopped" in screen.text())
            assert shell.screen.cursor_shown and shell.modes() == before
            shell.type("fg\n")
            shell.wait_for(lambda screen: screen.on_alternate and step_of(screen) > 0)
            shell.type("q")
            shell.wait_for(lambda screen: not screen.on_alternate and screen.cursor_shown)
            shell.type("echo status $?\n")
            shell.wait_for_text("status 0")
            assert shell.modes() == before
        finally:
            shell.close()


@test
def a_view_ends_with_its_run():
    with training(steps=2000) as run, terminal("watch", "run.db", "--interval", "0.1") as view:
        assert view.end(60) == 0 and view.is_sane()
        assert "2000 of 2000, 100.0%" in view.screen.text()
        run.wait()


@test
def a_run_that_ended_early_is_a_no():
    with training(steps=1000000) as run:
        run.kill()
        run.wait()
    with contextlib.closing(sqlite3.connect("run.db")) as database:
        database.execute("UPDATE runs SET finished_at = started_at")
        database.commit()
    answer = memplan("watch", "run.db", "--once")
    assert answer.returncode == 1 and "ended early" in answer.stdout, answer


@test
def a_run_that_died_before_anybody_looked_is_no_running_one():
    with training() as run:
        run.kill()
        run.wait()
    for name in ("run.db", "run.db-wal"):
        if os.path.exists(name):
            os.utime(name, (time.time() - 7220,) * 2)
    page = memplan("watch", "run.db", "--once").stdout
    told = re.compile(r"no news for 2 h 0\d min; was it killed\?")
    assert told.search(page) and " left" not in page, page
    assert json.loads(memplan("watch", "run.db", "--once", "--json").stdout)["state"] == "silent"
    with subprocess.Popen([MEMPLAN, "watch", "run.db"], stdout=subprocess.PIPE, text=True) as view:
        line = view.stdout.readline()
        view.kill()
    assert told.search(line), line


@test
def a_watched_run_is_as_it_would_have_been():
    losses = []
    for watched in (False, True):
        name = f"{watched}.db"
        with training("--dp", "2", steps=1500, name=name) as run:
            view = subprocess.Popen([MEMPLAN, "watch", name, "--interval", "0.01", "--json"],
                                    stdout=subprocess.PIPE, text=True) if watched else None
            run.wait()
            if view:
                lines = view.communicate()[0].splitlines()
                assert view.returncode == 0 and len(lines) > 5
                assert json.loads(lines[-1])["state"] == "done"
        losses.append(ask(name, "SELECT rank, step, loss, grad_norm FROM steps ORDER BY rank, step"))
        # In one file again, and not in the mode of a file that is being written.
        assert ask(name, "PRAGMA journal_mode") == [("delete",)] and not os.path.exists(f"{name}-wal")
    assert losses[0] == losses[1] and len(losses[0]) == 3000


@test
def elsewhere_it_is_lines():
    with training(steps=1500):
        answer = memplan("watch", "run.db", "--interval", "0.05")
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0 and len(lines) > 2, answer
    for line in lines[:-1]:
        assert re.match(r"step +\d+/1500  loss  \d\.\d{4}  +\d+ tokens/s  [\d.]+ KiB of 4.00 MiB, [\d.]+%"
                        r"  [\d.]+ m?s left$", line), line
    assert re.match(r"step 1500/1500 .* done after ", lines[-1]), lines[-1]


@test
def without_colours_there_are_none():
    with training(), terminal("watch", "run.db", NO_COLOR="1") as view:
        view.wait_for(lambda screen: step_of(screen) > 0)
        assert not view.screen.coloured and "█" not in view.screen.text() and "#" in view.screen.text()


@test
def processes_under_mpirun_are_all_shown():
    library = os.path.join(os.path.dirname(MEMPLAN), "libmemplan_mpi.so")
    if not shutil.which("mpirun") or not os.path.exists(library):
        raise Skip("no mpirun, or built without MPI")
    run = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np",
                            "2", MEMPLAN, "train", *SMALL, "--dp", "2", "--steps", "400", "-o", "run.db", "-q"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            document = json.loads(memplan("watch", "run.db", "--once", "--json").stdout or '{"ranks": []}')
            if all(rank["steps_done"] for rank in document["ranks"]) and document["ranks"]:
                break
            time.sleep(0.02)
        assert os.path.exists("run.db.rank-1.part"), "the run was over too early to see"
        assert [rank["peak_bytes"] == rank["predicted_bytes"] for rank in document["ranks"]] == [True, True]
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
    finally:
        run.kill()
    document = json.loads(memplan("watch", "run.db", "--once", "--json").stdout)
    assert [rank["steps_done"] for rank in document["ranks"]] == [400, 400] and document["state"] == "done"


@test
def training_shows_how_far_it_is_under_the_lines_of_its_steps():
    with terminal("train", *SMALL, "--steps", "3000", columns=120) as view:
        view.wait_for(lambda screen: re.search(r"^training  \[#+\.+\]  \d+/3000  [\d.]+/s  [\d.]+ m?s left  loss \d\.\d{4}$",
                                               screen.text(), re.M))
        assert view.end(200) == 0 and view.screen.wrapped == 0
        assert "training" not in view.screen.text(), view.screen.text()
        assert "step 3000/3000" in view.screen.text() and "error 0 bytes" in view.screen.text()


@test
def training_into_a_file_shows_it_too_and_quietly_it_does_not():
    shell = "{} train {} --steps 1500 --json {} >steps.json"
    for quiet in ("", "-q"):
        view = Terminal(["bash", "-c", shell.format(MEMPLAN, " ".join(SMALL), quiet)], columns=120)
        try:
            assert view.end(200) == 0
            assert ("training  [" in view.bytes) == (not quiet), view.bytes[:2000]
            assert "training" not in view.screen.text(), view.screen.text()
        finally:
            view.close()
        with open("steps.json", encoding="ascii") as file:
            assert len([json.loads(line) for line in file]) == 1501


@test
def measuring_shows_how_far_it_is():
    with terminal("plan", "gpt2-tiny", "--cluster", "1x1:cpu(8MiB)", "--global-batch", "1", columns=120) as view:
        assert view.end(100) == 0
        assert re.search(r"measuring this machine  \[#+\.+\]  \d+/\d+  [\d.]+/s  [\d.]+ m?s left", view.bytes), view.bytes
        assert "measuring" not in view.screen.text()


WIDTHS = ("describe gpt2-124m --pp 2 --global-batch 4", "predict llama3-8b --device h100-80g --tp 2", "report run.db", "report plan.json",
          "plan gpt2-355m --cluster 1x8:a100-40g --global-batch 64 --precision bf16", "compare plan.json run.db", "env",
          "check --device h100-80g -- torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64"
          " --max-position-embeddings 64 --micro-batch-size 1 --vocab-size 128 --bf16 --attention-dropout 0 --hidden-dropout 0")


@test
def answers_fit_80_columns_in_blocks_and_in_ascii_and_a_wide_terminal_changes_nothing():
    memplan("plan", "gpt2-tiny", "--cluster", "1x2:cpu(8MiB)", "--global-batch", "8", "--pp", "2", "-q", "-o", "plan.json")
    memplan("profile", "plan.json", "--data", "corpus.txt", "--steps", "2", "-q", "-o", "run.db")
    for command in map(str.split, WIDTHS):
        pages = {}
        for columns in (80, 200):
            for setting in ({}, {"LC_ALL": "C"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
                with terminal(*command, columns=columns, rows=300, **setting) as view:
                    assert view.end(60) in (0, 1)
                    page, where = view.screen.text(), (command, columns, setting)
                    assert view.screen.wrapped == 0 and max(map(len, view.screen.lines())) <= 80, where
                    assert view.screen.coloured == (not setting), where
                    assert page.isascii() or not setting or "TERM" in setting, where
                    pages[columns, str(setting)] = re.sub(r"\d[\d.,]* ?([mu]?s\b|[kMGT]?(FLOP|B)/s)", "", page)
        for setting in ({}, {"LC_ALL": "C"}, {"NO_COLOR": "1"}):
            assert pages[80, str(setting)].split() == pages[200, str(setting)].split(), (command, setting)
        assert pages[80, str({"LC_ALL": "C"})].split() == pages[80, str({"NO_COLOR": "1"})].split(), command


FOUR_KINDS = "32x8:v100-32g+32x8:a100-40g+32x8:a100-80g+32x8:h100-80g"
LARGE_PLAN = f"plan gpt3-175b --cluster {FOUR_KINDS} --global-batch 1024 --precision bf16".split()


@test
def a_search_that_takes_long_says_for_how_long_and_quietly_it_does_not():
    for quiet in ((), ("-q",)):
        with terminal(*LARGE_PLAN, *quiet) as view:
            assert view.end(120) == 0
            lines = re.findall(r"\rplan  [\d.]+ m?s\x1b\[K", view.bytes)
            assert bool(lines) == (not quiet), view.bytes[:500]
            assert "plan  " not in "\n".join(view.screen.lines()[-3:]) and view.screen.wrapped == 0
            answer = view.bytes.rfind("\r\x1b[K")
            assert quiet or view.bytes.find("Plan for gpt3-175b") > answer > view.bytes.rfind(lines[-1])


@test
def work_in_a_pipe_has_no_progress_line():
    answer = memplan(*LARGE_PLAN)
    assert answer.returncode == 0 and answer.stderr == "", answer.stderr


def run_test(function):
    """In a folder of its own; returns "ok", "FAIL" or "skip"."""
    sentence = function.__name__.replace("_s_", "'s_").replace("_", " ")
    with tempfile.TemporaryDirectory(prefix="memplan-live.") as folder:
        os.chdir(folder)
        with open("corpus.txt", "w", encoding="ascii") as corpus:
            corpus.writelines(f"line {i} of the corpus: the quick brown fox jumps.\n" for i in range(400))
        try:
            function()
            verdict, reason = "ok", ""
        except Skip as skip:
            verdict, reason = "skip", f": {skip}"
        except Exception:  # pylint: disable=broad-except
            verdict, reason = "FAIL", "\n" + traceback.format_exc()
        os.chdir("/")
    print(f"{verdict:5} {sentence}{reason}", flush=True)
    return verdict


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    verdicts = [run_test(function) for function in TESTS if wanted in function.__name__.replace("_", " ")]
    print(f"{verdicts.count('ok')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('skip')} skipped")
    return verdicts.count("FAIL") > 0


if __name__ == "__main__":
    sys.exit(main())

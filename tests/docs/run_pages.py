"""Runs the commands in the pages of docs/ and in the README of the root, and compares what they print with what the page shows.

    MEMPLAN=build/memplan python3 tests/docs/run_pages.py [--write] [PAGE...]

A block fenced as ```console is commands behind "$ " (going on in the next line after a "\\"), each followed by its output,
stdout and stderr as they come. A command must succeed, unless it ends with the comment "# exit status 1". In what it prints

    ...                a line of three dots stands for any number of lines, three dots at the end of a line for its rest
    18.4 ms, 3 tokens/s   every time, rate and date stands for every other
    loss 4.12, norm 3  may be off by a tenth: other processors add up in another order, and the text that is trained on grows

and columns may move; all else is compared letter by letter. The quick start runs first, and the other pages start from the
files that it leaves. --write fills in the output of commands that show none, for whoever writes a page."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIRST = "quick-start.md"
TIME = re.compile(r"\b\d[\d.]*(?: h \d+ min| min \d+ s| (?:s|ms|us|ns))\b")
DATE = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
RATE = re.compile(r"\b\d[\d.,]* ?[kMGTP]?(?:tokens|tok|FLOP|B)/s")
NEARLY = re.compile(r"\b(loss|norm) +(\d+\.\d+)")


def plain(line):
    """A line without what differs from run to run; and the numbers that may differ a little."""
    numbers = [float(number) for _, number in NEARLY.findall(line)]
    line = NEARLY.sub(r"\1 <number>", RATE.sub("<rate>", TIME.sub("<time>", DATE.sub("<date>", line))))
    return re.sub(r"\s+", " ", line).strip(), numbers


def line_matches(wanted, got):
    wanted, numbers = plain(wanted)
    got, measured = plain(got)
    if wanted.endswith("..."):
        got, measured = got[:len(wanted) - 3] + "...", measured[:len(numbers)]
    near = all(abs(a - b) <= 0.1 * abs(a) for a, b in zip(numbers, measured))
    return wanted == got and len(numbers) == len(measured) and near


def lines_match(wanted, got):
    """Whether all of it matches; else the first wanted line that does not, as far as that can be told."""
    if not wanted:
        return not got
    if wanted[0].strip() == "...":
        return any(lines_match(wanted[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and line_matches(wanted[0], got[0]) and lines_match(wanted[1:], got[1:])


class Command:
    """A command of a page, from line `first` to before line `end`, its output from `output` on."""

    def __init__(self, text, first, output):
        self.text, self.first, self.output, self.end = text, first, output, output


def commands_of(lines):
    found, inside, at = [], False, 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            first, text = at, line[2:]
            while text.endswith("\\"):
                at += 1
                text = text[:-1] + lines[at].strip()
            found.append(Command(text, first, at + 1))
        elif inside and found:
            found[-1].end = at + 1
        at += 1
    return found


def run(command, folder):
    environment = {**os.environ, "PATH": os.path.dirname(os.environ["MEMPLAN"]) + ":" + os.environ["PATH"],
                   "NO_COLOR": "1", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", command.text], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
    return done.returncode, done.stdout.splitlines()


def status_of(command):
    found = re.search(r"# exit status (\d+)$", command.text)
    return int(found[1]) if found else 0


def check_page(path, folder, write):
    """The complaints about a page; [] when it is right."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    complaints, filled = [], []
    for command in commands_of(lines):
        status, got = run(command, folder)
        wanted = lines[command.output:command.end]
        where = f"{os.path.relpath(path, ROOT)}:{command.first + 1}"
        if status != status_of(command):
            complaints += [f"{where}: exit status {status}: {command.text}", *got]
        elif write and not wanted:
            filled.append((command.end, got))
        elif not lines_match(wanted, got):
            complaints += [f"{where}: {command.text}", "shown:", *wanted, "printed:", *got]
    for end, got in reversed(filled):
        lines[end:end] = got
    if filled:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
    return complaints


def pages_of(docs):
    """Those that show commands, and every command's own."""
    def shows(name):
        with open(os.path.join(docs, name), encoding="utf-8") as file:
            return "\n```console\n" in file.read()
    commands = sorted(os.listdir(os.path.join(docs, "commands")))
    others = sorted(name for name in os.listdir(docs) if name.endswith(".md") and name != FIRST and shows(name))
    return [FIRST, os.path.join(os.pardir, "README.md")] + others + [os.path.join("commands", name) for name in commands if name.endswith(".md")]


def missing_pages(docs):
    """Every command has a page, every page a command, and the index names both."""
    listed = subprocess.run([os.environ["MEMPLAN"], "help"], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^  ([a-z]+) ", listed, re.M))
    pages = {name[:-3] for name in os.listdir(os.path.join(docs, "commands"))}
    with open(os.path.join(docs, "README.md"), encoding="utf-8") as file:
        index = file.read()
    return [f"no page docs/commands/{name}.md" for name in sorted(names - pages)] + \
           [f"no command {name}, but a page" for name in sorted(pages - names)] + \
           [f"docs/README.md does not name commands/{name}.md" for name in sorted(names) if f"commands/{name}.md" not in index]


def unknown_options(docs):
    """Options that the pages of commands name in their text, and no command has. Those of launches belong to others."""
    def memplan(*arguments):
        return subprocess.run([os.environ["MEMPLAN"], *arguments], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  ([a-z]+) ", memplan("help"), re.M)
    known = {option for name in names for option in re.findall(r"^ {2,6}(?:-., )?(--[a-z0-9-]+)", memplan("help", name), re.M)}
    complaints = []
    for name in sorted(set(names) - {"check", "export"}):
        with open(os.path.join(docs, "commands", f"{name}.md"), encoding="utf-8") as file:
            named = set(re.findall(r"`(--[a-z0-9-]+)[^`]*`", file.read()))
        complaints += [f"commands/{name}.md: no command has {option}" for option in sorted(named - known)]
    return complaints


def broken_links(docs):
    """Links of those pages, and of the README of every folder, that lead nowhere."""
    complaints = []
    pages = {page for pattern in ("*.md", "*/*.md") for page in glob.glob(os.path.join(docs, pattern))}
    for pattern in ("README.md", "*/README.md", "*/*/README.md"):
        pages.update(glob.glob(os.path.join(ROOT, pattern)))
    for page in sorted(pages):
        with open(page, encoding="utf-8") as file:
            for target in re.findall(r"\]\(([^)#: ]+)[)#]", file.read()):
                if not os.path.exists(os.path.join(os.path.dirname(page), target)):
                    complaints.append(f"{os.path.relpath(page, ROOT)}: {target} is not there")
    return complaints


def main():
    arguments = sys.argv[1:]
    write = "--write" in arguments
    wanted = [os.path.basename(page) for page in arguments if page != "--write"]
    docs = os.path.join(ROOT, "docs")
    verdicts = []

    def verdict(sentence, complaints):
        verdicts.append(not complaints)
        print(f"{'FAIL' if complaints else 'ok':5} {sentence}", flush=True)
        for line in complaints:
            print(f"      {line}")

    verdict("every command has a page, and the index names it", missing_pages(docs))
    verdict("every option that the text of a page names exists", unknown_options(docs))
    verdict("links between pages lead somewhere", broken_links(docs))
    with tempfile.TemporaryDirectory(prefix="memplan-docs.") as scratch:
        start = os.path.join(scratch, "start")
        os.mkdir(start)
        for name in ("docs", "examples"):
            os.symlink(os.path.join(ROOT, name), os.path.join(start, name))
        for page in pages_of(docs):
            if page != FIRST and wanted and os.path.basename(page) not in wanted:
                continue
            folder = start
            if page != FIRST:
                folder = os.path.join(scratch, "page")
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(start, folder, symlinks=True)
            path = os.path.normpath(os.path.join(docs, page))
            verdict(f"{os.path.relpath(path, ROOT)} shows what its commands print", check_page(path, folder, write))
    print(f"{sum(verdicts)} passed, {len(verdicts) - sum(verdicts)} failed, 0 skipped")
    return not all(verdicts)


if __name__ == "__main__":
    sys.exit(main())

"""Every figure in every format of a command's answer is the same one: bytes and times in texts, tables, pages and pictures are
looked up, unrounded, in the JSON document of the same command.

    MEMPLAN=build/memplan python3 tests/cli/same_figures.py [FILTER]
"""
import csv
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile

MEMPLAN = os.environ["MEMPLAN"]
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
BYTES = re.compile(r"(?<![\w.])([+-]?)(\d+(?:\.\d+)?) (PiB|TiB|GiB|MiB|KiB|B)(?![/\w])")
SECONDS = re.compile(r"(?<![\w.,-])(\d+(?:\.\d+)?) (s|ms|us|ns)(?![\w/])")
JOB = ("torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024"
       " --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 64 --tensor-model-parallel-size 2 --bf16"
       " --vocab-size 50304 --attention-dropout 0 --hidden-dropout 0").split()
SMALL = "--data corpus.txt --steps 2 -q".split()
CASES = {
    "predict": ["predict", "plan.json"],
    "plan": "plan gpt2-355m --cluster 1x8:a100-40g --global-batch 64 --precision bf16".split(),
    "plan of stages": "plan gpt2-355m --cluster 1x4:a100-40g --global-batch 16 --pp 4".split(),
    "check": ["check", "--device", "h100-80g", "--", *JOB],
    "describe": "describe gpt2-tiny --pp 2 --global-batch 4".split(),
    "report of a run": ["report", "run.db"],
    "report of a pipeline": ["report", "pipeline.db"],
    "report of a plan": ["report", "plan.json"],
    "compare of a plan and its run": ["compare", "plan.json", "pipeline.db"],
    "compare of two runs": ["compare", "run.db", "pipeline.db"],
    "watch": ["watch", "pipeline.db", "--once"],
}


def memplan(*arguments):
    answer = subprocess.run([MEMPLAN, *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), f"{arguments}: {answer.stderr}"
    return answer.stdout


def numbers_of(document):
    """All numbers of a JSON document."""
    if isinstance(document, bool):
        return
    if isinstance(document, (int, float)):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from numbers_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from numbers_of(value)


STATES = ("parameter", "gradient", "optimizer")
OTHERS = ("workspace", "communication", "input", "runtime")
GROUPS = (("rank",), ("stage",), ("role",), ("layer",), ("name",), ("stage", "layer"), ("stage", "role"), ("stage", "layer", "role"))


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def derived_of(document):
    """What a text may work out: differences of two figures of one object, sums of its roles, sums over a list by rank, stage,
    layer, role or name."""
    if isinstance(document, dict):
        wholes = {key: value for key, value in document.items() if is_whole(value)}
        yield from (abs(a - b) for a in wholes.values() for b in wholes.values())
        for roles in (STATES, OTHERS, STATES + OTHERS + ("activation",)):
            yield sum(wholes.get(role, 0) for role in roles)
        for value in document.values():
            yield from derived_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from derived_of(value)
        rows = [row for row in document if isinstance(row, dict)]
        for keys in GROUPS:
            sums = {}
            for row in rows:
                for key, value in row.items():
                    if is_whole(value) and all(name in row for name in keys):
                        at = (*(row[name] for name in keys), key)
                        sums[at] = sums.get(at, 0) + value
            yield from sums.values()
            for at, total in sums.items():
                yield from (abs(total - other) for there, other in sums.items() if there[:-1] == at[:-1])


def layers_of(document):
    """The numbers of the layers that a document names."""
    if isinstance(document, dict):
        layer = document.get("layer")
        return set([layer] if is_whole(layer) and layer >= 0 else []).union(*map(layers_of, document.values()))
    return set().union(*map(layers_of, document)) if isinstance(document, list) else set()


def sentences_of(document):
    """The texts of a JSON document."""
    if isinstance(document, str):
        yield " ".join(document.split())
    elif isinstance(document, (dict, list)):
        for value in document.values() if isinstance(document, dict) else document:
            yield from sentences_of(value)


class Known:
    """What a JSON document says."""

    def __init__(self, *documents):
        self.sentences = {text for document in documents for text in sentences_of(document) if " " in text}
        self.numbers = {abs(number) for document in documents for number in numbers_of(document)}
        self.sizes = self.numbers | {number for document in documents for number in derived_of(document)}
        # Equal layers are one row, with what they are in all; what is free is what the peak leaves.
        for document in documents:
            layers, capacity = len(layers_of(document)), document.get("capacity_bytes") or 0
            self.sizes |= {layers * size for size in self.sizes} if layers else set()
            self.sizes |= {capacity - size for size in self.numbers if capacity > size}

    @staticmethod
    def has(low, high, candidates):
        return any(low <= number <= high for number in candidates)

    def knows_bytes(self, digits, unit):
        step = 10.0 ** -len(digits.partition(".")[2])
        size = float(digits) * UNITS[unit]
        slack = 0.5001 * step * UNITS[unit] if unit != "B" else 0
        return self.has(size - slack, size + slack, self.sizes)

    def knows_seconds(self, digits, unit):
        slack = 0.5001 * 10.0 ** -len(digits.partition(".")[2]) * TIMES[unit]
        seconds = float(digits) * TIMES[unit]
        return self.has(seconds - slack, seconds + slack, self.numbers)


def strangers(text, known):
    """The figures of a text that the JSON document does not have, neither as numbers nor in the very same sentence."""
    text = " ".join(text.split())
    for sentence in known.sentences:
        text = text.replace(sentence, "")
    found = [f"{sign}{digits} {unit}" for sign, digits, unit in BYTES.findall(text) if not known.knows_bytes(digits, unit)]
    return found + [f"{digits} {unit}" for digits, unit in SECONDS.findall(text) if not known.knows_seconds(digits, unit)]


class Page(html.parser.HTMLParser):
    """The exact figures of a page: bytes of its tables, and its peaks."""

    def __init__(self, text):
        super().__init__()
        self.bytes, self.peaks = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if (attributes.get("title") or "").endswith(" bytes"):
            assert attributes["title"] == attributes["data-value"] + " bytes", attributes
            self.bytes.append(int(attributes["data-value"]))
        if attributes.get("class") == "peak":
            self.peaks.append(int(attributes["data-bytes"]))


def check_text(command, *more):
    """The text against the JSON of the same command, and of `more` commands that know the rest of it."""
    at = command.index("--") if "--" in command else len(command)
    # How long a search took is of that search; what is free is known to the operating system alone.
    text = re.sub(r"(configurations|layouts) in [\d.]+ [mu]?s", "", memplan(*command))
    documents = [json.loads(memplan(*command[:at], "--json", *command[at:]))]
    documents += [json.loads(memplan(*other, "--json")) for other in more]
    known = Known(*documents)
    assert len(BYTES.findall(text)) >= 5, f"few figures in {text}"
    assert not strangers(text, known), f"not in the JSON: {strangers(text, known)}\n{text}"
    # A test that cannot fail would take the text of another model too.
    other = memplan("predict", "gpt2-1558m", "--dp", "2", "--global-batch", "6")
    assert len(strangers(other, known)) > 5, "the document knows any figure"
    return documents[0]


def check_files(command, document):
    """All formats of a report or a comparison against its JSON."""
    for suffix in ("csv", "html", "svg", "json", "txt"):
        memplan(*command, "-q", "-o", f"out.{suffix}")
    read = lambda suffix: open(f"out.{suffix}", encoding="utf-8", newline="").read()
    assert json.loads(read("json")) == document
    rows = list(csv.reader(read("csv").splitlines()))
    cells = {int(cell) for row in rows for cell in row if re.fullmatch(r"-?\d+", cell)}
    page = Page(read("html"))
    assert len(page.bytes) > 10 and set(page.bytes) <= cells, f"not in the tables: {set(page.bytes) - cells}"
    total = next(row for row in rows if row and row[0] == "total")
    if "peak_bytes" in document:
        assert set(page.peaks) == {document["peak_bytes"]} and int(total[1]) == document["peak_bytes"], (page.peaks, total)
        svg = re.search(r"class='peak' data-bytes='(\d+)'", read("svg"))
        assert int(svg[1]) == document["peak_bytes"]
    else:
        rank = [row for row in document["rows"] if row["rank"] == document["rows"][0]["rank"]]
        assert int(total[1]) == sum(row["predicted_bytes"] for row in rank), total
        assert int(total[2]) == sum(row["measured_bytes"] for row in rank), total
    assert read("txt") == memplan(*command)


def make_files():
    with open("corpus.txt", "w", encoding="ascii") as corpus:
        corpus.writelines(f"line {i} of the corpus: the quick brown fox jumps.\n" for i in range(400))
    memplan("profile", "gpt2-tiny", *SMALL, "-o", "run.db")
    memplan(*"plan gpt2-tiny --cluster 1x2:cpu(8MiB) --global-batch 8 --pp 2 --virtual-stages 2 --micro-batch 2 -q -o plan.json".split())
    memplan("profile", "plan.json", *SMALL, "-o", "pipeline.db")


def run_case(name, command):
    try:
        # Of a plan, report's document has the layers and tensors that predict's text shows.
        more = [["report", "plan.json"]] if command[0] == "predict" else []
        document = check_text(command, *more)
        if command[0] in ("report", "compare"):
            check_files(command, document)
    except AssertionError as error:
        print(f"FAIL  figures of {name}\n      {str(error)[:3000]}")
        return False
    print(f"ok    figures of {name}")
    return True


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory(prefix="memplan-figures.") as folder:
        os.chdir(folder)
        make_files()
        verdicts = [run_case(name, command) for name, command in CASES.items() if wanted in name]
        os.chdir("/")
    print(f"{verdicts.count(True)} passed, {verdicts.count(False)} failed, 0 skipped")
    return not all(verdicts)


if __name__ == "__main__":
    sys.exit(main())

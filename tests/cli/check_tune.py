"""Whether what `memplan tune -o` writes is what it promises: for every example, with room and without, the written script is
checked by `memplan check`, and must have the promised peak, need, odds and step; lines that no edit is about stand in it as
they did; no other file has changed; and the parts of a step add up to it. Small searches are repeated without any short
cut, and must find as fast a launch.

    check_tune.py MEMPLAN FOLDER_OF_EXAMPLES
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SMALL = 300
# Of options, by a part of their names, what is said where they change: the first that is found.
SPOKEN = (
    ("liger", "Liger"),
    ("checkpointing", "made again"),
    ("precision-aware", "precision-aware|on the host"),
    ("ALLOC-CONF", "expandable segments"),
    ("offload", "host|on data|split|whole"),
    ("num-layers-per-virtual", "chunks"),
    ("virtual", "chunks"),
    ("recompute", "made again"),
    ("activation-checkpoint", "made again"),
    ("checkpoint", "made again"),
    ("selective-ac", "made again"),
    ("no-pipeline-parallel", "split"),
    ("global-batch", "micro-batch|sequences a step|parallel"),
    ("batch-size", "micro-batch|sequences a step"),
    ("accumulation", "micro-batch|sequences a step"),
    ("tensor", "tensor parallel"),
    ("sequence-parallel", "tensor parallel|sequence parallel"),
    ("context", "context parallel"),
    ("pipeline", "pipeline"),
    ("stage", "split|whole"),
    ("fsdp", "split|whole|gathered again|kept from forward|copies|host"),
    ("distributed-optimizer", "split"),
    ("reshard", "gathered again|kept from forward|split|whole"),
    ("data-parallel", "copies|split"),
    ("attn", "attention"),
    ("attention", "attention"),
)


def run(memplan, command, *options):
    """The exit status and the JSON document."""
    line = [memplan, command, "--json", "--quiet", "--device", "h100-80g", *map(str, options)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(line)}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spelled(text):
    return text.replace("_", "-")


def is_about(line, edits, files):
    """Whether an edit has business on that line: its option or key, the program behind which options go, or a renamed file."""
    names = [part for edit in edits for part in edit["name"].split(".")] + files
    plain = spelled(line)
    return any(spelled(name) in plain for name in names) or "train" in plain or ".py" in plain or plain.strip() in ("", "\\")


def check_text(before, after, edits, files):
    """Whatever else stands in the script stands there in the same order."""
    rest = iter(after.splitlines())
    for line in before.splitlines():
        if not is_about(line, edits, files):
            assert any(line == other for other in rest), f"gone: {line!r}"


def check_named(launch, script):
    """Whether what changes is said to: each edit in the words that its option is spoken of, or as it is written."""
    said = launch["differences"] or ""
    for edit in launch["edits"]:
        words = next((words for name, words in SPOKEN if name in spelled(edit["name"])), edit["name"])
        assert re.search(words, said), f"{script}: {edit['name']} is not among: {said}"


def check_written(memplan, folder, script, memory, name="tuned.sh"):
    """How many files were written; 0 where there is nothing to change."""
    before = contents(folder)
    status, answer = run(memplan, "tune", "--memory", memory, "-o", folder / name, folder / script)
    written = [pathlib.Path(path) for path in answer["written"]]
    assert status == (0 if answer["fits"] else 1), script
    assert bool(written) == answer["fits"], script
    for path, content in before.items():
        assert path.read_bytes() == content, f"{script}: {path} has changed"
    assert set(contents(folder)) - set(before) == set(written), script
    if not written:
        return answer, 0
    promised, path = answer["after"] or answer["before"], folder / name
    check_named(promised, script)
    for launch in (answer["before"], promised):
        parts = launch["spent_seconds"] or {"computation": launch["step_seconds"]}
        assert min(parts.values()) >= 0 and abs(sum(parts.values()) / launch["step_seconds"] - 1) < 1e-9, f"{script}: {parts}"
    _, found = run(memplan, "check", "--memory", memory, path)
    for key in ("peak_bytes", "needed_bytes", "probability", "fits", "global_batch", "micro_batch", "dp", "tp", "pp", "cp"):
        assert found[key] == promised[key], f"{script}: {key} is {found[key]}, promised {promised[key]}"
    assert abs(found["step_seconds"] / promised["step_seconds"] - 1) < 1e-9, script
    assert found["global_batch"] == answer["before"]["global_batch"], script
    assert os.stat(path).st_mode == os.stat(folder / script).st_mode, script
    files = [edit["file"] for edit in promised["edits"] if edit["file"]]
    check_text((folder / script).read_text(), path.read_text(), promised["edits"], files)
    for each in written:
        each.unlink()
    return answer, len(written)


def main():
    memplan, examples = sys.argv[1], pathlib.Path(sys.argv[2])
    scripts = files = repeated = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "launch"
        shutil.copytree(examples, folder)
        for script in sorted(path.name for path in examples.glob("*.sh")):
            _, now = run(memplan, "check", folder / script)
            for memory in (80 << 30, int(0.7 * now["needed_bytes"])):
                answer, count = check_written(memplan, folder, script, memory)
                scripts += count > 0
                files += count
                if answer["searched"]["launches"] < SMALL:
                    _, whole = run(memplan, "tune", "--memory", memory, "--exhaustive", folder / script)
                    times = [found["after"] and round(found["after"]["time_ratio"], 6) for found in (answer, whole)]
                    assert times[0] == times[1], f"{script}: {times[0]}, and without short cuts {times[1]}"
                    repeated += 1
    print(f"{scripts} scripts written, with {files - scripts} other files; {repeated} searches repeated")


main()

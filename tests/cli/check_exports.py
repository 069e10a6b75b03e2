"""Whether `memplan check` answers for what `memplan export` writes: plans of many models, made for the system that they are exported
to and made for none, are held against the rules of that framework, which count in another way. Made for it, nothing is lost on the way
(no note says what is written instead), the padded vocabulary and the ranks are the plan's, and both say that it fits.

For Megatron-LM the peaks of the stage that needs most are the same within so many per cent, but for two terms that check names and
our own trainer has not: the loss' softmax in fp32, and on the last stage of a pipeline a 16-bit gradient of the head. A plan that was
made for none may not fit there, by those and by what is kept free for what no rule accounts for; and where Megatron-LM has no such
recomputation, what runs instead keeps no more. torchtitan has fp32 weights and whole fp32 gradients, sharded over all data-parallel
ranks, so that its need is another one.

    check_exports.py MEMPLAN
"""
import json
import os
import re
import subprocess
import sys
import tempfile

PEAKS_WITHIN = 0.02
OWN_TERMS = ("softmax", "gradient of the head")
TITAN_BETWEEN = (0.7, 2)

# Model, cluster, global batch, and what else is asked for.
PLANS = [
    ("gpt2-774m", "1x4:l40s", 64, ""),
    ("gpt2-1558m", "1x8:a100-40g", 512, ""),
    ("llama2-7b", "1x8:a100-80g", 256, ""),
    ("llama2-7b", "4x4:a100-40g,net=200Gb/s", 256, ""),
    ("llama2-7b", "2x8:h100-80g", 256, "--pp 2 --micro-batch 1 --pipeline-schedule 1f1b"),
    ("llama2-13b", "4x8:b200", 512, ""),
    ("llama2-13b", "2x8:a100-80g", 256, "--tp 8"),
    ("llama2-70b", "16x8:h100-80g,net=400Gb/s", 1024, ""),
    ("llama3-8b", "2x8:h100-80g", 256, "--pp 4 --tp 2 --micro-batch 1 --pipeline-schedule 1f1b"),
    ("llama3-8b", "2x8:h100-80g", 256, "--pp 4 --tp 2 --micro-batch 1 --virtual-stages 2"),
    ("llama3-70b", "64x8:h100-80g,net=400Gb/s", 1024, ""),
    ("llama3-405b", "128x8:h100-80g,net=400Gb/s", 1024, ""),
    ("llama3-405b", "2048x8:h100-80g,net=400Gb/s", 2048, ""),
    # Not as many ranks as the batch would have.
    ("llama3-8b", "3x5:a100-80g", 60, ""),
    # The embedding and the head are chunks of their own.
    ("llama3-8b", "2x8:h100-80g", 256, "--pp 2 --tp 2 --micro-batch 1 --virtual-stages 17"),
]
LOST = re.compile(r"what is written|no recomputation of|schedule; 1f1b|made again")


def run(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout and "-o" not in arguments:
        raise ValueError(f"memplan {' '.join(arguments)}: {done.stderr.strip()}")
    return done


def planned(system, plan, made_for_it):
    """Writes plan.json and what is exported of it; returns the plan's answer, and whether something is lost."""
    model, cluster, batch, asked = plan
    made_for = ["--for", system] if made_for_it else []
    answer = json.loads(run("plan", model, "--cluster", cluster, "--global-batch", str(batch), "--precision", "bf16",
                            *made_for, "-q", "--json", *asked.split()).stdout)
    with open("plan.json", "w", encoding="utf-8") as file:
        json.dump(answer["plan"], file)
    notes = run("export", "plan.json", "--to", system, "-o", f"plan.{system}").stderr
    lost = LOST.search(notes)
    if lost and made_for_it:
        raise ValueError(f"the export loses something: {notes.strip()}")
    return answer, lost


def launch_of(system, answer):
    """How it is started, as the exported file says."""
    if system == "megatron":
        return ["plan.megatron"]
    with open("plan.torchtitan", encoding="utf-8") as file:
        nodes, each = re.search(r"--nnodes (\d+) --nproc-per-node (\d+)", file.read()).groups()
    return ["--model", answer["plan"]["model"]["name"], "--", "torchrun", "--nnodes", nodes, "--nproc-per-node", each, "-m",
            "torchtitan.train", "--job.config_file", "plan.torchtitan.toml"]


def checked(system, answer):
    device = answer["plan"]["device"]
    if system == "torchtitan":
        with open("plan.torchtitan", encoding="utf-8") as source, open("plan.torchtitan.toml", "w", encoding="utf-8") as copy:
            copy.write(source.read())
    return json.loads(run("check", "--json", "-q", "--explain", "--device", device, *launch_of(system, answer)).stdout)


def padded_vocabulary(verdict):
    for setting in verdict["settings"]:
        if setting["name"] in ("padded vocabulary", "--padded-vocab-size"):
            return int(setting["value"])
    return None


def stage_peak(device, stage):
    """Of that stage of plan.json, by our own trainer's program. Equal stages are one entry."""
    stages = json.loads(run("predict", "plan.json", "--device", device, "--json", "-q").stdout)["stages"]
    return [s for s in stages if s["stage"] <= stage][-1]["peak_bytes"]


def judge_peaks(verdict, device, lost):
    """How far apart the peaks are once the terms that only Megatron-LM has are taken off; and what is wrong with that."""
    own = sum(term["bytes"] for term in verdict["terms"] if term["name"] in OWN_TERMS)
    planned_bytes = stage_peak(device, verdict["worst_stage"])
    apart = (verdict["peak_bytes"] - own) / planned_bytes - 1
    unexplained = apart > PEAKS_WITHIN or (apart < -PEAKS_WITHIN and not lost)
    return f"a peak of {own / 2**30:.2f} GiB of its own terms and {1 + apart:.3f} of the plan's", ["unexplained"] if unexplained else []


def judge_layout(verdict, answer):
    layout = answer["plan"]["layout"]
    keys = ("dp", "tp", "pp", "micro_batch", "global_batch", "seq_len")
    return [f"{key} {verdict[key]} for {layout[key]}" for key in keys if verdict[key] != layout[key]]


def judge_vocabulary(verdict, answer):
    tp, vocabulary = answer["plan"]["layout"]["tp"], answer["plan"]["model"]["vocab"]
    padded = (vocabulary + tp - 1) // tp * tp
    return [] if padded_vocabulary(verdict) == padded else [f"a vocabulary of {padded_vocabulary(verdict)} for {padded}"]


def judge(system, plan, made_for_it):
    """A line about the plan, and whether it is as it should be."""
    answer, lost = planned(system, plan, made_for_it)
    verdict = checked(system, answer)
    ratio = verdict["needed_bytes"] / answer["alternatives"][0]["needed_bytes"]
    what = f"needs {ratio:.3f} of the plan's, {'fits' if verdict['fits'] else 'does not fit'}"
    wrong = judge_layout(verdict, answer) + (["the plan fits"] if made_for_it and not verdict["fits"] else [])
    if system == "megatron":
        peaks, unexplained = judge_peaks(verdict, answer["plan"]["device"], lost)
        what = f"{what}, with {peaks}"
        wrong += unexplained + judge_vocabulary(verdict, answer)
    elif not TITAN_BETWEEN[0] < ratio < TITAN_BETWEEN[1]:
        wrong.append("far off")
    return "; ".join([what, *wrong]), not wrong


def main():
    failed = 0
    for system, made_for_it in (("megatron", True), ("megatron", False), ("torchtitan", True)):
        for plan in PLANS:
            if system == "torchtitan" and plan[0].startswith("gpt2"):
                continue
            try:
                line, fine = judge(system, plan, made_for_it)
            except ValueError as error:
                line, fine = str(error), False
            failed += not fine
            name = system if made_for_it else f"{system}, not asked for,"
            print(f"{'close' if fine else 'WRONG'}: {name} {' '.join(map(str, plan))}: {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.argv[1] = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(main())

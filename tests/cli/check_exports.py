"""Whether `memplan check` answers for what `memplan export` writes: plans of even, uneven and interleaved stages are exported, and
the need that is predicted by the rules of the framework is held against the plan's own, which is counted in another way. Megatron-LM
keeps what the plan keeps; torchtitan has fp32 weights and whole fp32 gradients, so that it needs more, if not twice as much.

    check_exports.py MEMPLAN
"""
import json
import subprocess
import sys

CARD = "h100-80g"
SIZE = f"--cluster 2x8:{CARD} --global-batch 256 --precision bf16 --micro-batch 1".split()
PLANS = {
    "even": "llama2-7b --pp 2 --tp 1 --pipeline-schedule 1f1b".split(),
    "uneven": "llama3-8b --pp 4 --tp 2 --pipeline-schedule 1f1b".split(),
    "interleaved": "llama3-8b --pp 4 --tp 2 --virtual-stages 2 --pipeline-schedule interleaved".split(),
}
TITAN = "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --job.config_file plan.toml".split()


def run(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout and "-o" not in arguments:
        sys.exit(f"{arguments}: {done.stderr}")
    return done.stdout


def checked(*launch):
    return json.loads(run("check", "--json", "-q", "--device", CARD, *launch))["needed_bytes"]


def ratios(name):
    """What each framework needs of what the plan needs."""
    answer = json.loads(run("plan", *PLANS[name], *SIZE, "-q", "--json"))
    with open("plan.json", "w", encoding="utf-8") as file:
        json.dump(answer["plan"], file)
    layers = [stage["layers"] for stage in answer["plan"]["stages"]]
    if (len(set(layers)) > 1) != (name == "uneven"):
        sys.exit(f"{name}: {layers}")
    run("export", "plan.json", "--to", "megatron", "-q", "-o", "plan.sh")
    run("export", "plan.json", "--to", "torchtitan", "-q", "-o", "plan.toml")
    needed = answer["alternatives"][0]["needed_bytes"]
    return checked("plan.sh") / needed, checked("--model", PLANS[name][0], "--", *TITAN) / needed


for name in PLANS:
    megatron, titan = ratios(name)
    close = abs(megatron - 1) < 0.15 and 1 < titan < 2
    print(f"{name}: {'close' if close else 'far off'} (Megatron-LM {megatron:.3f}, torchtitan {titan:.3f})")

"""Whole training steps under autocast, with adapters, quantized weights and other heads, against `memplan check`.

Counted as in compare_jobs.py: every storage that an operator makes, while it lives. Adapters are PEFT's, quantized weights
bitsandbytes'; where one of them is missing, what needs it is skipped.
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch

from compare_families import find_transformers
from compare_jobs import CUBLAS, Held

B, T, MOST_WRONG = 4, 256, 0.05
# The vocabulary is small, so that layers make the peak and not the loss.
LLAMA = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
         "intermediate_size": 688, "vocab_size": 512, "max_position_embeddings": T, "tie_word_embeddings": False}  # fmt: skip
MIXTURE = {**LLAMA, "moe_intermediate_size": 192, "num_experts": 8, "num_experts_per_tok": 2, "num_local_experts": 8}
BERT = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 4000,
        "max_position_embeddings": T, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
ATTENTION, FEED, ALL = ["q_proj", "v_proj"], ["gate_proj", "up_proj", "down_proj"], "all-linear"
# what, model, sizes, words; adapters beside which modules
JOBS = [
    ("weights that autocast casts", "Llama", LLAMA, "autocast", None),
    ("and layers made again", "Llama", LLAMA, "autocast again", None),
    ("adapters of attention", "Llama", LLAMA, "fp32", ATTENTION),
    ("adapters of the feed-forward", "Llama", LLAMA, "fp32", FEED),
    ("adapters of all", "Llama", LLAMA, "fp32", ALL),
    ("adapters of attention beside fp32 under autocast", "Llama", LLAMA, "autocast", ATTENTION),
    ("adapters of all beside fp32 under autocast", "Llama", LLAMA, "autocast", ALL),
    ("and layers made again", "Llama", LLAMA, "autocast again", ALL),
    ("adapters of all beside bf16 under autocast", "Llama", LLAMA, "autocast half", ALL),
    ("with dropout", "Llama", LLAMA, "autocast half dropout", ALL),
    ("and layers made again", "Llama", LLAMA, "autocast half again", ALL),
    ("adapters of all beside bf16", "Llama", LLAMA, "half", ALL),
    ("of the feed-forward", "Llama", LLAMA, "half", FEED),
    ("adapters beside 4 bits", "Llama", LLAMA, "autocast half four", ALL),
    ("prepared as TRL does", "Llama", LLAMA, "autocast half four prepared", ALL),
    ("and layers made again", "Llama", LLAMA, "autocast half four prepared again", ALL),
    ("adapters of attention beside 8 bits, prepared", "Llama", LLAMA, "autocast half eight prepared", ATTENTION),
    ("adapters of all and experts", "Qwen3Moe", MIXTURE, "autocast half", ALL),
    ("experts, trained whole", "Qwen3Moe", MIXTURE, "fp32", None),
    ("of experts alone", "Mixtral", MIXTURE, "autocast half", ["w1", "w2", "w3"]),
    ("a classifier", "BertForSequenceClassification", BERT, "fp32", None),
    ("a classifier under autocast", "BertForSequenceClassification", BERT, "autocast", None),
    ("a classifier, layers made again", "BertForSequenceClassification", BERT, "fp32 again", None),
]


def needed(name):
    try:
        return importlib.import_module(name)
    except Exception:  # whatever an import can raise: it is not usable here
        return None


def quantize(model, bnb, bits):
    """Linear layers but the head, in place, as transformers' bitsandbytes integration does. A CPU multiplies as GPUs do."""
    functions = bnb.autograd._functions
    functions.MatMul8bitFp = functions.MatMul8bitLt
    for name, module in list(model.named_modules()):
        for key, child in list(module.named_children()):
            if not isinstance(child, torch.nn.Linear) or key == "lm_head":
                continue
            if bits == 4:
                new = bnb.nn.Linear4bit(child.in_features, child.out_features, bias=False, compute_dtype=torch.float32,
                                        quant_type="nf4")  # fmt: skip
                new.weight = bnb.nn.Params4bit(child.weight.data, requires_grad=False, quant_type="nf4", module=new)
            else:
                new = bnb.nn.Linear8bitLt(child.in_features, child.out_features, bias=False, has_fp16_weights=False)
                new.weight = bnb.nn.Int8Params(child.weight.data, requires_grad=False, has_fp16_weights=False)
            setattr(module, key, new.to("cpu"))
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = bits == 4, bits == 8
    return model


def prepare(model, bits):
    """What peft.prepare_model_for_kbit_training() and TRL's peft_module_casting_to_bf16() do to types."""
    for parameter in model.parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()
    for name, module in model.named_modules():
        if bits == 4 and ("lm_head" in name or "embed_tokens" in name):
            module.to(torch.bfloat16)


def dropped(x, p=0.5, training=True, inplace=False):
    """What CUDA runs; a CPU keeps its noise in full."""
    return torch.native_dropout(x, p, training)[0] if p and training else x


def build(transformers, job, words):
    _, name, sizes, _, targets = job
    kind, _, head = name.partition("For")
    config = getattr(transformers, kind + "Config")(**sizes)
    auto = transformers.AutoModelForSequenceClassification if head else transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="sdpa").train()
    model.config.use_cache = False
    if "half" in words:
        model.to(torch.bfloat16)
    bits = 4 if "four" in words else 8 if "eight" in words else 0
    if bits:
        quantize(model, needed("bitsandbytes"), bits)
    if "prepared" in words:
        prepare(model, bits)
    if targets:
        peft = needed("peft")
        dropout = 0.05 if "dropout" in words else 0.0
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=targets, lora_dropout=dropout, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model, config


def measured(model, words, classifies):
    if "again" in words:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, held = torch.optim.AdamW(trained, foreach=True), Held()
    with held:
        for tensor in [*model.parameters(), *model.buffers()]:
            held.add(tensor)
        for _ in range(2):
            ids = torch.randint(500, (B, T))  # so that all experts see tokens
            with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in words):
                out = model(input_ids=ids, labels=ids[:, 0] % 2 if classifies else ids)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del out
    return held.peak


def predicted(memplan, folder, words, targets, classifies):
    program = "run_glue.py" if classifies else "sft.py" if "prepared" in words else "run_clm.py"
    line = [memplan, "check", "--device", "a100-80g", "--json", "--", "python", program, "--model_name_or_path", folder,
            "--per_device_train_batch_size", str(B), "--max_seq_length", str(T), "--output_dir", "out",
            "--optim", "adamw_torch", "--attn_implementation", "sdpa", "--gradient_checkpointing", str("again" in words)]  # fmt: skip
    line += ["--bf16", str("autocast" in words)] + (["--torch_dtype", "bfloat16"] if "half" in words else [])
    if targets:
        names = [targets] if isinstance(targets, str) else targets
        line += ["--use_peft", "--lora_r", "8", "--lora_dropout", "0.05" if "dropout" in words else "0"]
        line += ["--lora_target_modules", *names]
    line += ["--load_in_4bit"] if "four" in words else ["--load_in_8bit"] if "eight" in words else []
    done = subprocess.run(line, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["peak_bytes"] - CUBLAS


def lacking(words, targets):
    wants = (["peft"] if targets else []) + (["bitsandbytes"] if {"four", "eight"} & set(words) else [])
    return [name for name in wants if not needed(name)]


def main(memplan):
    transformers = find_transformers()
    if not transformers or not os.access(memplan, os.X_OK):
        lacks = f"{memplan} is not built" if transformers else f"{sys.executable} has no transformers for its PyTorch"
        print(f"skip  adapters: {lacks}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for job in JOBS:
        what, name, _, flags, targets = job
        words, classifies = flags.split(), "For" in name
        lacks = lacking(words, targets)
        if lacks:
            print(f"skip  adapters: {what}: {sys.executable} has no {lacks[0]}")
            counts["skipped"] += 1
            continue
        model, config = build(transformers, job, words)
        with tempfile.TemporaryDirectory() as folder:
            config.architectures = [name if classifies else type(model).__name__]
            config.save_pretrained(folder)
            want = predicted(memplan, folder, words, targets, classifies)
        got = measured(model, words, classifies)
        error = want / got - 1
        wrong = abs(error) > MOST_WRONG
        print(f"{'FAIL ' if wrong else 'ok   '} adapters: {what} ({flags}): {got:,} bytes, predicted {want:,} ({error:+.1%})", flush=True)
        counts["failed" if wrong else "passed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return counts["failed"] > 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.nn.functional.dropout = dropped
    sys.exit(main(sys.argv[1]))

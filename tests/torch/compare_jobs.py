"""Whole training steps of transformers' models against `memplan check`: the peak of what operators hold, layers, loss and AdamW.

Every storage that an operator makes is counted while it lives, in steps of 512 bytes as PyTorch's CUDA allocator counts them. A CPU
has no cuBLAS workspace, so memplan's is taken off. Needs transformers; elsewhere it says so and skips.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compare_families import find_transformers, tensors_in

B, T, CUBLAS, MOST_WRONG = 4, 256, 8519680, 0.02
SIZES = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4000,
         "max_position_embeddings": T}  # fmt: skip
GATED = {**SIZES, "intermediate_size": 688, "num_key_value_heads": 4, "head_dim": 32}
PLAIN = {**SIZES, "intermediate_size": 1024}
# family: class, sizes, attention, and whether it is judged where all layers are made again. With eager attention that moment is
# a layer's, and modules hold scores in variables until they return, which no rule says of BLOOM's and GPT-J's.
FAMILIES = {
    "llama": ("Llama", GATED, "sdpa", True),
    "qwen3": ("Qwen3", GATED, "sdpa", True),
    "gemma2": ("Gemma2", GATED, "eager", True),
    "phi": ("Phi", PLAIN, "sdpa", True),
    "gpt_neox": ("GPTNeoX", PLAIN, "sdpa", True),
    "falcon": ("Falcon", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 4}, "sdpa", True),
    "opt": ("OPT", {**SIZES, "ffn_dim": 1024, "word_embed_proj_dim": 256, "dropout": 0.0}, "sdpa", True),
    "bloom": ("Bloom", {"hidden_size": 256, "n_layer": 4, "n_head": 8, "vocab_size": 4000}, "eager", False),
    "gptj": ("GPTJ", {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 4000, "rotary_dim": 16,
                      "n_positions": T}, "eager", False),
    "gpt2": ("GPT2", {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 4000, "n_positions": T,
                      "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "sdpa", True),
}  # fmt: skip


class Held(TorchDispatchMode):
    """Bytes of the storages that are alive, and the most there were."""

    def __init__(self):
        super().__init__()
        self.bytes, self.peak, self.known = 0, 0, set()

    def add(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata in self.known:
            return
        size = (storage.nbytes() + 511) // 512 * 512
        self.known.add(storage._cdata)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self.drop, storage._cdata, size)

    def drop(self, key, size):
        self.bytes -= size
        self.known.discard(key)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tensors_in(out):
            self.add(tensor)
        return out


def measured(transformers, config, attention, again):
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()
    model.config.use_cache = False
    if again:
        model.gradient_checkpointing_enable()
    optimizer, held = torch.optim.AdamW(model.parameters(), foreach=True), Held()
    with held:
        for tensor in [*model.parameters(), *model.buffers()]:
            held.add(tensor)
        for _ in range(2):
            ids = torch.ones(B, T, dtype=torch.int64)
            out = model(input_ids=ids, labels=ids)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del out
    return held.peak


def predicted(memplan, folder, attention, again):
    line = [memplan, "check", "--device", "a100-80g", "--json", "--", "python", "run_clm.py", "--model_name_or_path", folder,
            "--per_device_train_batch_size", str(B), "--block_size", str(T), "--dataset_name", "text", "--output_dir", "out",
            "--do_train", "--optim", "adamw_torch", "--attn_implementation", attention]  # fmt: skip
    line += ["--gradient_checkpointing", "True"] if again else []
    return json.loads(subprocess.run(line, capture_output=True, text=True).stdout)["peak_bytes"] - CUBLAS


def main(memplan):
    transformers = find_transformers()
    if not transformers or not os.access(memplan, os.X_OK):
        lacks = f"{memplan} is not built" if transformers else f"{sys.executable} has no transformers for its PyTorch"
        print(f"skip  jobs: {lacks}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = skipped = 0
    for family, (name, sizes, attention, judged) in FAMILIES.items():
        config = getattr(transformers, name + "Config")(**sizes)
        for again in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                config.save_pretrained(folder)
                want = predicted(memplan, folder, attention, again)
            got = measured(transformers, config, attention, again)
            error, known = want / got - 1, again and not judged
            wrong = abs(error) > MOST_WRONG
            verdict = "skip " if known else "FAIL " if wrong else "ok   "
            what = f"{family}, {attention}, {'all' if again else 'nothing'} made again"
            print(f"{verdict} jobs: {what}: {got:,} bytes, predicted {want:,} ({error:+.1%})", flush=True)
            passed, failed, skipped = passed + (not known and not wrong), failed + (not known and wrong), skipped + known
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    sys.exit(main(sys.argv[1]))

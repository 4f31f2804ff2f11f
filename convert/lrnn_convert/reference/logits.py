"""Logits of the library that defines a checkpoint: transformers, or fla (flash-linear-attention).

    python logits.py check FOLDER    which library defines model_type, and whether it is installed
    python logits.py run FOLDER      logits of FOLDER/tokens.npy

`lrnn-convert --verify` runs this file in the Python environment that has the library, so it imports
nothing of the converter. FOLDER was written by the converter: config.json without auto_map, weights
in safetensors. There is no code and no pickle in it, and nothing is downloaded. The answer is in
FOLDER/answer.json: "library", "device" and "error" or "install"; libraries print on stdout.
"""

import json
import math
import os
import sys
from pathlib import Path

# before any import of torch: no compilation, no kernels from the network
os.environ.update(TORCHDYNAMO_DISABLE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
                  USE_HUB_KERNELS="0")

FLA_PIECE = 32       # tokens per call: fla's recurrent kernels, which compute in float32


class Missing(Exception):
    """Packages to install."""


def import_library(model_type):
    """Imports torch, transformers and, unless transformers has the model_type, fla. Returns the
    name of the library with its version and whether it is fla."""
    try:
        import torch
    except ImportError:
        raise Missing("torch", "transformers") from None
    # transformers would compute with fla's kernels where it can; its own code is the definition
    sys.modules["fla"] = None
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    except ImportError:
        raise Missing("transformers") from None
    if model_type in CONFIG_MAPPING_NAMES:
        return f"transformers {transformers.__version__}", False
    del sys.modules["fla"]
    if not torch.cuda.is_available():
        # fla is written in Triton, which compiles for a GPU or interprets; set before its import
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import fla
        import fla.models  # registers the model types with transformers
    except ImportError:
        raise Missing("flash-linear-attention") from None
    return f"fla {getattr(fla, '__version__', '')}".strip(), True


def prepare_fla(torch):
    if not torch.cuda.is_available():
        from triton.runtime.autotuner import Autotuner

        # measuring variants of a kernel needs a GPU
        Autotuner._bench = lambda *args, **options: [0.0, 0.0, 0.0]

    def attention(q, k, v, causal=True, window_size=(-1, -1), **_):
        """softmax(q kᵀ / √d) v in place of flash-attn, which does not compute in float32. q is
        [B, T, H, d]; the last rows of k and v belong to q."""
        groups = q.shape[2] // k.shape[2]
        k, v = (x.repeat_interleave(groups, dim=2) for x in (k, v))
        i = torch.arange(k.shape[1] - q.shape[1], k.shape[1], device=q.device)[:, None]
        j = torch.arange(k.shape[1], device=q.device)[None, :]
        hidden = j > i
        if window_size[0] >= 0:
            hidden = hidden | (j < i - window_size[0])
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2)

    import fla.layers.attn

    fla.layers.attn.flash_attn_func = attention


def load_model(folder, torch):
    """The model in float32. A tensor that the library does not find would be random."""
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        str(folder), trust_remote_code=False, local_files_only=True, use_safetensors=True,
        torch_dtype=torch.float32, output_loading_info=True)
    absent = sorted(info["missing_keys"])
    if absent:
        raise ValueError(f"it finds no tensor {absent[0]} in the checkpoint"
                         + (f" ({len(absent)} are missing)" if len(absent) > 1 else ""))
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def compute(model, tokens, is_fla, torch):
    """[T, vocabulary] float32."""
    ids = torch.from_numpy(tokens)[None].to(model.device)          # [1, T]
    with torch.no_grad():
        if not is_fla:
            rows = [model(ids, use_cache=False).logits[0]]
        else:
            rows, cache = [], None
            for at in range(0, ids.shape[1], FLA_PIECE):
                out = model(ids[:, at:at + FLA_PIECE], past_key_values=cache, use_cache=True)
                rows.append(out.logits[0])
                cache = out.past_key_values
        return torch.cat(rows).float().cpu().numpy()


def answer_run(folder, is_fla):
    import numpy as np
    import torch

    if is_fla:
        prepare_fla(torch)
    model = load_model(folder, torch)
    tokens = np.load(folder / "tokens.npy", allow_pickle=False)
    np.save(folder / "reference.npy", compute(model, tokens.astype(np.int64), is_fla, torch))


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    answer = {}
    try:
        answer["library"], is_fla = import_library(config["model_type"])
        import torch

        gpu = torch.cuda.is_available()
        answer["device"] = "GPU" if gpu else "CPU, interpreted" if is_fla else "CPU"
        if what == "run":
            answer_run(folder, is_fla)
    except Missing as e:
        answer["install"] = list(e.args)
    except Exception as e:  # whatever a library raises, the user needs its text
        text = str(e).strip().splitlines()
        answer["error"] = f"{type(e).__name__}: {text[0] if text else 'no message'}"
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()

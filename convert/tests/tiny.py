"""Tiny checkpoints with random weights, for every family and layout.

The function named after a family makes a checkpoint of it: (config or None, tensors). All sizes
differ, so that a swapped pair of dimensions is detected.
"""

import numpy as np

from lrnn_convert.families import FAMILIES

D, V, L, I = 8, 11, 2, 20


def make(family):
    return globals()[family]()


def families(*ranges):
    """Names of the families, or of those with the given eigenvalue ranges."""
    return [f.name for f in FAMILIES.values() if not ranges or f.range in ranges]


def rng():
    return np.random.default_rng(7)


def randoms(shapes):
    g = rng()
    return {name: g.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def with_prefix(prefix, shapes):
    return {prefix + name: shape for name, shape in shapes.items()}


def biases_of(tensors, names):
    """Random biases for the named weights."""
    return randoms({n.replace("weight", "bias"): tensors[n].shape[:1] for n in names})


def swiglu(F):
    return {"mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D),
            "mlp.down_proj.weight": (D, F)}


def fla(mixer, layers=L):
    """fla's language model around a mixer {name: shape}."""
    s = {"model.embeddings.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(layers):
        layer = {"attn_norm.weight": (D,), "mlp_norm.weight": (D,), **swiglu(I),
                 **with_prefix("attn.", mixer)}
        s |= with_prefix(f"model.layers.{i}.", layer)
    return randoms(s)


def config(model_type, **options):
    return {"model_type": model_type, "hidden_size": D, "num_hidden_layers": L, "norm_eps": 1e-6,
            "tie_word_embeddings": False, **options}


def projections(q, k, v):
    return {"q_proj.weight": (q, D), "k_proj.weight": (k, D), "v_proj.weight": (v, D)}


def convolutions(W, **channels):
    return {f"{c}_conv1d.weight": (n, 1, W) for c, n in channels.items()}


def output(P, value_dim):
    return {"o_norm.weight": (P,), "o_proj.weight": (D, value_dim)}


def delta_net(H=2, K=3, P=5, W=4):
    mixer = {**projections(H * K, H * K, H * P), "b_proj.weight": (H, D),
             **convolutions(W, q=H * K, k=H * K, v=H * P), **output(P, H * P)}
    return config("delta_net", num_heads=H), fla(mixer)


def gated_delta_net_mixer(H, HV, K, P, W):
    return {**projections(H * K, H * K, HV * P), "b_proj.weight": (HV, D), "a_proj.weight": (HV, D),
            "A_log": (HV,), "dt_bias": (HV,), "g_proj.weight": (HV * P, D),
            **convolutions(W, q=H * K, k=H * K, v=HV * P), **output(P, HV * P)}


def gated_delta_net(H=2, HV=4, K=3, P=5, W=4):
    return (config("gated_deltanet", num_heads=H, num_v_heads=HV),
            fla(gated_delta_net_mixer(H, HV, K, P, W)))


def gated_delta_product(layout="C", H=2, K=3, P=5, W=4, n=3):
    """The same weights in layout A, B or C."""
    mixer = {**projections(H * K, n * H * K, n * H * P), "b_proj.weight": (n * H, D),
             "a_proj.weight": (H, D), "A_log": (H,), "dt_bias": (H,),
             **convolutions(W, q=H * K, k=n * H * K, v=n * H * P), **output(P, H * P)}
    t = fla(mixer)
    c = config("gated_deltaproduct", num_heads=H, num_householder=n, allow_neg_eigval=True,
               use_forget_gate=True)
    c["use_gate" if layout == "A" else "use_output_gate"] = False
    if layout == "C":
        return c, t
    split = ("k_proj", "v_proj", "b_proj", "k_conv1d", "v_conv1d")
    out = {}
    for name, x in t.items():
        part = name.rsplit(".", 2)
        if len(part) == 3 and part[1] in split and ".attn." in name:
            for j, piece in enumerate(np.split(x, n)):
                out[f"{part[0]}.{part[1]}s.{j}.weight"] = piece
        elif layout == "A" and name.endswith("q_conv1d.weight"):
            for j in range(n):
                out[name.replace("q_conv1d", f"q_conv1ds.{j}")] = x + j
        else:
            out[name] = x
    return c, out


def megatron_gdp(G=2, HV=4, N=3, P=5, n=3, W=4, heads=4, KV=2, hd=3, F=12):
    """Three layers: Gated DeltaProduct, an MLP, attention; in_proj and conv1d in one piece."""
    E = HV * P
    channels = n * E + (n + 1) * G * N
    s = {"embedding.word_embeddings.weight": (V, D), "decoder.final_norm.weight": (D,),
         "output_layer.weight": (V, D)}
    s |= with_prefix("decoder.layers.0.mixer.", {
        "in_proj.layer_norm_weight": (D,), "in_proj.weight": (E + channels + (n + 1) * HV, D),
        "conv1d.weight": (channels, 1, W), "dt_bias": (HV,), "A_log": (HV,), "norm.weight": (E,),
        "out_proj.weight": (D, E)})
    s |= with_prefix("decoder.layers.1.mlp.", {
        "linear_fc1.layer_norm_weight": (D,), "linear_fc1.weight": (F, D),
        "linear_fc2.weight": (D, F)})
    s |= with_prefix("decoder.layers.2.self_attention.", {
        "linear_qkv.layer_norm_weight": (D,), "linear_qkv.weight": ((heads + 2 * KV) * hd, D),
        "linear_proj.weight": (D, heads * hd)})
    return {"model_type": "megatron_gdp", "hybrid_layer_pattern": "M|-*", "mamba_num_groups": G,
            "mamba_state_dim": N, "gdp_num_householder": n, "num_attention_heads": heads,
            "num_query_groups": KV, "normalization": "RMSNorm", "squared_relu": True,
            "position_embedding_type": "none"}, randoms(s)


def kda(H=2, K=3, P=5, W=4):
    mixer = {**projections(H * K, H * K, H * P), "b_proj.weight": (H, D),
             "f_proj.0.weight": (P, D), "f_proj.1.weight": (H * K, P), "A_log": (1, 1, H, 1),
             "dt_bias": (H * K,), "g_proj.0.weight": (P, D), "g_proj.1.weight": (H * P, P),
             "g_proj.1.bias": (H * P,), **convolutions(W, q=H * K, k=H * K, v=H * P),
             **output(P, H * P)}
    return config("kda", num_heads=H), fla(mixer)


def gated_delta_net_2(H=2, HV=4, K=3, P=5, W=4):
    mixer = {**projections(H * K, H * K, HV * P), "b_proj.weight": (H * K, D),
             "w_proj.weight": (HV * P, D), "f_proj.0.weight": (P, D),
             "f_proj.1.weight": (H * K, P), "A_log": (H,), "dt_bias": (H * K,),
             "g_proj.0.weight": (P, D), "g_proj.1.weight": (HV * P, P), "g_proj.1.bias": (HV * P,),
             **convolutions(W, q=H * K, k=H * K, v=HV * P), **output(P, HV * P)}
    return config("gdn2", num_heads=H, num_v_heads=HV), fla(mixer)


def gla(H=4, KV=2, K=3, P=5, norm="g_norm.weight"):
    mixer = {**projections(H * K, KV * K, KV * P), "gk_proj.0.weight": (6, D),
             "gk_proj.1.weight": (KV * K, 6), "gk_proj.1.bias": (KV * K,),
             "g_proj.weight": (H * P, D), "o_proj.weight": (D, H * P)}
    if norm:
        mixer[norm] = (P,)
    return config("gla", num_heads=H, num_kv_heads=KV), fla(mixer)


def retnet(H=4, KV=2, K=6, P=5):
    mixer = {**projections(H * K, KV * K, KV * P), "g_proj.weight": (H * P, D),
             "g_norm.weight": (P,), "o_proj.weight": (D, H * P)}
    return config("retnet", num_heads=H, num_kv_heads=KV), fla(mixer)


def hgrn2(H=2, K=4, layers=L):
    mixer = {"q_proj.weight": (H * K, D), "f_proj.weight": (H * K, D), "i_proj.weight": (D, D),
             "g_norm.weight": (D,), "o_proj.weight": (D, D)}
    t = fla(mixer, layers)
    t["model.lower_bounds"] = rng().standard_normal((layers, H * K)).astype(np.float32)
    return config("hgrn2", num_heads=H) | {"num_hidden_layers": layers}, t


def backbone(model_type, mixer, embedding="backbone.embeddings.weight", **options):
    """transformers' Mamba or Mamba-2."""
    s = {embedding: (V, D), "backbone.norm_f.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        s |= with_prefix(f"backbone.layers.{i}.",
                         {"norm.weight": (D,), **with_prefix("mixer.", mixer)})
    return {"model_type": model_type, "hidden_size": D, "num_hidden_layers": L,
            "tie_word_embeddings": False, **options}, randoms(s)


def mamba(E=2 * D, N=3, R=2, W=4, embedding="backbone.embeddings.weight"):
    mixer = {"in_proj.weight": (2 * E, D), "conv1d.weight": (E, 1, W), "conv1d.bias": (E,),
             "x_proj.weight": (R + 2 * N, E), "dt_proj.weight": (E, R), "dt_proj.bias": (E,),
             "A_log": (E, N), "D": (E,), "out_proj.weight": (D, E)}
    return backbone("mamba", mixer, embedding)


def mamba2(H=4, P=4, G=2, N=3, W=4):
    return backbone("mamba2", mamba2_mixer(H, P, G, N, W), n_groups=G)


def official_rwkv(att, ffn, linear):
    """Official RWKV checkpoint with {name: shape} of att and ffn, and D × D projections of att."""
    s = {"emb.weight": (V, D), "head.weight": (V, D), "ln_out.weight": (D,), "ln_out.bias": (D,),
         "blocks.0.ln0.weight": (D,), "blocks.0.ln0.bias": (D,)}
    for i in range(L):
        block = {f"{norm}.{x}": (D,) for norm in ("ln1", "ln2", "att.ln_x")
                 for x in ("weight", "bias")}
        block |= with_prefix("att.", att)
        block |= {f"att.{n}.weight": (D, D) for n in linear}
        block |= with_prefix("ffn.", ffn)
        s |= with_prefix(f"blocks.{i}.", block)
    return None, randoms(s)


def rwkv6(H=2, N=4, r=3, r2=5, F=12):
    att = {**{f"time_maa_{c}": (1, 1, D) for c in "xwkvrg"}, "time_maa_w1": (D, 5 * r),
           "time_maa_w2": (5, r, D), "time_decay": (1, 1, D), "time_decay_w1": (D, r2),
           "time_decay_w2": (r2, D), "time_faaaa": (H, N)}
    ffn = {"time_maa_k": (1, 1, D), "time_maa_r": (1, 1, D), "key.weight": (F, D),
           "value.weight": (D, F), "receptance.weight": (D, D)}
    return official_rwkv(att, ffn, ("receptance", "key", "value", "gate", "output"))


RANKS = {"w": 3, "a": 5, "v": 2, "g": 7}


def rwkv7(H=2, N=4):
    att = {f"x_{c}": (1, 1, D) for c in "rwkvag"}
    for c, r in RANKS.items():
        att |= {f"{c}1": (D, r), f"{c}2": (r, D)}
        if c != "g":
            att[f"{c}0"] = (1, 1, D)
    att |= {"k_k": (1, 1, D), "k_a": (1, 1, D), "r_k": (H, N)}
    ffn = {"x_k": (1, 1, D), "key.weight": (4 * D, D), "value.weight": (D, 4 * D)}
    return official_rwkv(att, ffn, ("receptance", "key", "value", "output"))


def fla_rwkv(official):
    """Embedding, output and norms of an official RWKV checkpoint under fla's names."""
    t = {"model.embeddings.weight": official["emb.weight"],
         "lm_head.weight": official["head.weight"]}
    for x in ("weight", "bias"):
        t[f"model.norm.{x}"] = official[f"ln_out.{x}"]
        t[f"model.layers.0.pre_norm.{x}"] = official[f"blocks.0.ln0.{x}"]
        for i in range(L):
            o, p = f"blocks.{i}.", f"model.layers.{i}."
            t[f"{p}attn_norm.{x}"] = official[f"{o}ln1.{x}"]
            t[f"{p}ffn_norm.{x}"] = official[f"{o}ln2.{x}"]
            t[f"{p}attn.g_norm.{x}"] = official[f"{o}att.ln_x.{x}"]
    return t


def rwkv6_fla_of(official, H=2, r=3):
    """The official weights under fla's names, in its layouts and order of groups (r,w,k,v,g)."""
    order = [3, 0, 1, 2, 4]                # of w,k,v,r,g
    t = fla_rwkv(official)
    for i in range(L):
        o, a, f = f"blocks.{i}.", f"model.layers.{i}.attn.", f"model.layers.{i}.ffn."
        t[a + "x_proj.0.mu"] = official[o + "att.time_maa_x"].reshape(-1)
        w1 = official[o + "att.time_maa_w1"].T.reshape(5, r, D)
        t[a + "x_proj.0.linear.weight"] = w1[order].reshape(5 * r, D)
        w2 = official[o + "att.time_maa_w2"][order].transpose(2, 0, 1)
        t[a + "x_proj.2.weight"] = w2.reshape(D, 5 * r)
        t[a + "x_bias"] = np.stack([official[f"{o}att.time_maa_{c}"].reshape(-1) for c in "rwkvg"])
        t[a + "w_proj.linear.lora.0.weight"] = official[o + "att.time_decay_w1"].T
        t[a + "w_proj.linear.lora.2.weight"] = official[o + "att.time_decay_w2"].T
        t[a + "w_proj.linear.lora.2.bias"] = official[o + "att.time_decay"].reshape(-1)
        t[a + "bonus"] = official[o + "att.time_faaaa"]
        for c, n in (("r", "receptance"), ("k", "key"), ("v", "value"), ("g", "gate")):
            t[f"{a}{c}_proj.linear.weight"] = official[f"{o}att.{n}.weight"]
        t[a + "o_proj.weight"] = official[o + "att.output.weight"]
        for n in ("key", "receptance"):
            t[f"{f}{n}.mu"] = official[f"{o}ffn.time_maa_{n[0]}"].reshape(-1)
            t[f"{f}{n}.linear.weight"] = official[f"{o}ffn.{n}.weight"]
        t[f + "value.weight"] = official[o + "ffn.value.weight"]
    return config("rwkv6", num_heads=H) | {"norm_eps": 1e-5}, t


def rwkv7_fla_of(official, fused_lerps=False):
    t = fla_rwkv(official)
    for i in range(L):
        o, a, f = f"blocks.{i}.att.", f"model.layers.{i}.attn.", f"model.layers.{i}.ffn."
        lerps = [official[f"{o}x_{c}"] for c in "rwkvag"]
        if fused_lerps:
            t[a + "x_x"] = np.stack([x.reshape(-1) for x in lerps])
        else:
            t |= {f"{a}x_{c}": x for c, x in zip("rwkvag", lerps)}
        for c in RANKS:
            if c == "v" and i == 0:
                continue
            t[f"{a}{c}_lora.lora.0.weight"] = official[f"{o}{c}1"].T
            t[f"{a}{c}_lora.lora.2.weight"] = official[f"{o}{c}2"].T
            if c != "g":
                t[f"{a}{c}_lora.lora.2.bias"] = official[f"{o}{c}0"].reshape(-1)
        for n in ("k_k", "k_a"):
            t[a + n] = official[o + n].reshape(-1)
        t[a + "r_k"] = official[o + "r_k"]
        for c, n in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            t[f"{a}{c}_proj.weight"] = official[f"{o}{n}.weight"]
        t[f + "x_k"] = official[f"blocks.{i}.ffn.x_k"].reshape(-1)
        for n in ("key", "value"):
            t[f"{f}{n}.weight"] = official[f"blocks.{i}.ffn.{n}.weight"]
    return config("rwkv7", head_dim=4, fuse_norm=False) | {"norm_eps": 64e-5 / 4}, t


def mlstm(H=2, K=3, P=4, F=12, fused=False):
    s = {"backbone.embeddings.weight": (V, D), "backbone.out_norm.weight": (D,),
         "lm_head.weight": (V, D)}
    for i in range(L):
        layer = {"q.weight": (H * K, D), "k.weight": (H * K, D), "v.weight": (H * P, D),
                 "ogate_preact.weight": (H * P, D), "igate_preact.weight": (H, D),
                 "igate_preact.bias": (H,), "fgate_preact.weight": (H, D),
                 "fgate_preact.bias": (H,), "multihead_norm.weight": (H * P,),
                 "out_proj.weight": (D, H * P)}
        s |= with_prefix(f"backbone.blocks.{i}.", {
            "norm_mlstm.weight": (D,), "norm_ffn.weight": (D,),
            **with_prefix("mlstm_layer.", layer), "ffn.proj_up_gate.weight": (F, D),
            "ffn.proj_up.weight": (F, D), "ffn.proj_down.weight": (D, F)})
    t = randoms(s)

    def fuse(name, parts):
        t[name] = np.concatenate([t.pop(part) for part in parts])

    for i in range(L if fused else 0):
        p = f"backbone.blocks.{i}."
        m = p + "mlstm_layer."
        fuse(m + "qkv_opreact.weight", [f"{m}{n}.weight" for n in ("q", "k", "v", "ogate_preact")])
        for x in ("weight", "bias"):
            fuse(f"{m}ifgate_preact.{x}", [f"{m}{g}gate_preact.{x}" for g in "if"])
        fuse(p + "ffn.proj_up_gate_z.weight",
             [p + f"ffn.{n}.weight" for n in ("proj_up_gate", "proj_up")])
    return {"model_type": "xlstm", "hidden_size": D, "num_blocks": L, "num_heads": H,
            "tie_word_embeddings": False}, t


def xlstm(H=2, E=16, b=4, W=4, F=12, function="slstm"):
    """The original one: an mLSTM, then an sLSTM as the backend `vanilla` saves it."""
    d = D // H
    norm = {"xlstm_norm.weight": (D,)}
    conv = {"conv1d.conv.weight": (E, 1, W), "conv1d.conv.bias": (E,)}
    mlstm_layer = {"proj_up.weight": (2 * E, D), "proj_down.weight": (D, E), "learnable_skip": (E,),
                   **{f"{n}_proj.weight": (E // b, b, b) for n in "qkv"}, **conv,
                   **{f"mlstm_cell.{g}gate.weight": (H, 3 * E) for g in "if"},
                   **{f"mlstm_cell.{g}gate.bias": (H,) for g in "if"},
                   "mlstm_cell.outnorm.weight": (E,)}
    slstm_layer = {**{f"{g}gate.weight": (H, d, d) for g in "ifzo"}, "group_norm.weight": (D,),
                   "slstm_cell._recurrent_kernel_": (H, 4 * d, d), "slstm_cell._bias_": (4 * D,)}
    s = {"token_embedding.weight": (V, D), "lm_head.weight": (V, D),
         "xlstm_block_stack.post_blocks_norm.weight": (D,),
         **with_prefix("xlstm_block_stack.blocks.0.", norm | with_prefix("xlstm.", mlstm_layer)),
         **with_prefix("xlstm_block_stack.blocks.1.", norm | with_prefix("xlstm.", slstm_layer) | {
             "ffn_norm.weight": (D,), "ffn.proj_up.weight": (2 * F, D),
             "ffn.proj_down.weight": (D, F)})}
    return {"num_blocks": 2, "slstm_at": [1], "mlstm_block": {"mlstm": {"num_heads": H}},
            "slstm_block": {"slstm": {"num_heads": H, "function": function},
                            "feedforward": {"act_fn": "gelu"}}}, randoms(s)


def attention(H, KV, hd):
    return {**projections(H * hd, KV * hd, KV * hd), "o_proj.weight": (D, H * hd)}


def transformer(H=4, KV=2, hd=2, F=12):
    """Llama."""
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,),
            **with_prefix("self_attn.", attention(H, KV, hd)), **swiglu(F)})
    return {"model_type": "llama", "hidden_size": D, "num_hidden_layers": L,
            "num_attention_heads": H, "num_key_value_heads": KV, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "rope_theta": 5000.0,
            "tie_word_embeddings": False}, randoms(s)


def rwkv_qwen(mixer, F=12):
    """A Qwen2.5 with this mixer in place of attention."""
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,),
            **with_prefix("self_attn.", mixer), **swiglu(F)})
    return {"hidden_size": D, "num_hidden_layers": L, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False}, randoms(s)


def rwkv6qwen2(H=4, KV=2, r=3, r2=5, F=12):
    kv = KV * D // H
    c, t = rwkv_qwen({
        **{f"time_maa_{c}": (1, 1, D) for c in "xrkvwg"}, "time_maa_w1": (D, 5 * r),
        "time_maa_w2": (5, r, D), "time_decay": (1, 1, D), "time_decay_w1": (D, r2),
        "time_decay_w2": (r2, D), **projections(D, kv, kv), "q_proj.bias": (D,),
        "k_proj.bias": (kv,), "v_proj.bias": (kv,), "gate.weight": (D, D),
        "o_proj.weight": (D, D)}, F)
    return c | {"model_type": "rwkv6qwen2", "num_attention_heads": H,
                "num_key_value_heads": KV}, t


def arwkv7(H=2, gated=True, normed=True, F=12):
    ranks = {c: r for c, r in RANKS.items() if gated or c != "g"}
    c, t = rwkv_qwen(with_prefix("time_mixer.", {
        **{f"x_{c}": (1, 1, D) for c in ("rwkvag" if gated else "rwkva")},
        **{f"{c}0": (1, 1, D) for c in "wav"}, **{f"{c}1": (D, r) for c, r in ranks.items()},
        **{f"{c}2": (r, D) for c, r in ranks.items()}, "k_k": (1, 1, D), "k_a": (1, 1, D),
        "r_k": (H, D // H),
        **{f"{n}.weight": (D, D) for n in ("receptance", "key", "value", "output")},
        **({"ln_x.weight": (D,), "ln_x.bias": (D,)} if normed else {})}), F)
    return c | {"model_type": "rwkv_hybrid", "wkv_has_gate": gated,
                "wkv_has_group_norm": normed}, t


def olmo_hybrid(H=2, K=3, P=6, W=4, F=12, hd=4, KV=1):
    """A second layout of gated_delta_net."""
    kinds = ["linear_attention", "full_attention"]
    recurrent = {"attention_layer_norm.weight": (D,), "feedforward_layer_norm.weight": (D,),
                 **with_prefix("linear_attn.", gated_delta_net_mixer(H, H, K, P, W))}
    full = {"post_attention_layernorm.weight": (D,), "post_feedforward_layernorm.weight": (D,),
            **with_prefix("self_attn.", {**attention(2, KV, hd), "q_norm.weight": (2 * hd,),
                                         "k_norm.weight": (KV * hd,)})}
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D),
         **with_prefix("model.layers.0.", recurrent | swiglu(F)),
         **with_prefix("model.layers.1.", full | swiglu(F))}
    return {"model_type": "olmo_hybrid", "hidden_size": D, "num_hidden_layers": 2,
            "layer_types": kinds, "num_attention_heads": 2, "num_key_value_heads": KV,
            "linear_num_key_heads": H, "linear_num_value_heads": H, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "rope_parameters": {"rope_theta": None},
            "tie_word_embeddings": False}, randoms(s)


def qwen35(H=2, HV=4, K=3, W=4, F=12, heads=2, KV=1, hd=4):
    C = (2 * H + HV) * K
    recurrent = {"in_proj_qkv.weight": (C, D), "in_proj_z.weight": (HV * K, D),
                 "in_proj_b.weight": (HV, D), "in_proj_a.weight": (HV, D),
                 "conv1d.weight": (C, 1, W), "A_log": (HV,), "dt_bias": (HV,),
                 "norm.weight": (K,), "out_proj.weight": (D, HV * K)}
    full = {"q_proj.weight": (2 * heads * hd, D), "k_proj.weight": (KV * hd, D),
            "v_proj.weight": (KV * hd, D), "o_proj.weight": (D, heads * hd),
            "q_norm.weight": (hd,), "k_norm.weight": (hd,)}
    norms = {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,)}
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D),
         **with_prefix("model.layers.0.", norms | with_prefix("linear_attn.", recurrent)
                       | swiglu(F)),
         **with_prefix("model.layers.1.", norms | with_prefix("self_attn.", full) | swiglu(F))}
    return {"model_type": "qwen3_5_text", "hidden_size": D, "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": heads,
            "num_key_value_heads": KV, "head_dim": hd, "linear_num_key_heads": H,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                                "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0],
                                "mrope_interleaved": True}}, randoms(s)


def draft_block(t):
    """The draft block of a Qwen: an attention layer as that of the model."""
    layer = "model.layers.1."
    return randoms({"mtp.fc.weight": (D, 2 * D), "mtp.pre_fc_norm_embedding.weight": (D,),
                    "mtp.pre_fc_norm_hidden.weight": (D,), "mtp.norm.weight": (D,),
                    **{n.replace(layer, "mtp.layers.0."): x.shape for n, x in t.items()
                       if n.startswith(layer)}})


def qwen35moe(X=3, F=5, FS=6, fused=False, **sizes):
    config, t = qwen35(**sizes)
    t = {n: x for n, x in t.items() if ".mlp." not in n}
    for i in range(2):
        parts = ({"gate_up_proj": (X, 2 * F, D), "down_proj": (X, D, F)} if fused
                 else experts(X, F))
        shared = {name.removeprefix("mlp."): shape for name, shape in swiglu(FS).items()}
        t |= randoms(with_prefix(f"model.layers.{i}.mlp.", {
            **with_prefix("experts.", parts), "gate.weight": (X, D),
            **with_prefix("shared_expert.", shared), "shared_expert_gate.weight": (1, D)}))
    return config | {"model_type": "qwen3_5_moe_text", "num_experts": X,
                     "num_experts_per_tok": 2}, t


def qwen3next(H=2, HV=4, K=3, W=4, **sizes):
    config, t = qwen35moe(H=H, HV=HV, K=K, W=W, **sizes)
    p = "model.layers.0.linear_attn."
    t = {n: x for n, x in t.items() if not n.startswith(p + "in_proj")}
    t |= randoms({p + "in_proj_qkvz.weight": (2 * (H + HV) * K, D),
                  p + "in_proj_ba.weight": (2 * HV, D)})
    return config | {"model_type": "qwen3_next", "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5}}, t


def latent(H, R, A, r, P, output, RQ=0):
    """Latent attention."""
    q = ({"q_a_proj.weight": (RQ, D), "q_a_layernorm.weight": (RQ,),
          "q_b_proj.weight": (H * (A + r), RQ)} if RQ else {"q_proj.weight": (H * (A + r), D)})
    return {**q, "kv_a_proj_with_mqa.weight": (R + r, D), "kv_a_layernorm.weight": (R,),
            "kv_b_proj.weight": (H * (A + P), R), output: (D, H * P)}


def delta(H, K, W, output):
    """Kimi delta attention without its gates."""
    E = H * K
    return {**projections(E, E, E), **convolutions(W, q=E, k=E, v=E), "b_proj.weight": (H, D),
            "dt_bias": (E,), "o_norm.weight": (K,), output: (D, E)}


def two_layers(embedding, mixer, mixers, mlp, dense, sparse):
    """A recurrent layer with an MLP, and an attention layer with a mixture."""
    s = {embedding: (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i, parts in enumerate(((mixers[0], dense), (mixers[1], sparse))):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,),
            **with_prefix(mixer, parts[0]), **with_prefix(mlp, parts[1])})
    return randoms(s)


def kimi_linear(H=2, K=3, W=4, X=3, F=5, inner=12, latent_sizes=(6, 5, 2, 7)):
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    stacked = {n.replace(old, new): x for n, x in experts(X, F).items()
               for old, new in names.items() if old in n}
    mlp = {n.removeprefix("mlp."): x for n, x in swiglu(inner).items()}
    shared = {n.removeprefix("mlp."): x for n, x in swiglu(F).items()}
    kda = {**delta(H, K, W, "o_proj.weight"), "A_log": (1, 1, H, 1), "f_a_proj.weight": (K, D),
           "f_b_proj.weight": (H * K, K), "g_a_proj.weight": (K, D), "g_b_proj.weight": (H * K, K)}
    t = two_layers("model.embed_tokens.weight", "self_attn.",
                   (kda, latent(H, *latent_sizes, "o_proj.weight")), "block_sparse_moe.", mlp,
                   {**with_prefix("experts.", stacked), "gate.weight": (X, D),
                    "gate.e_score_correction_bias": (X,), **with_prefix("shared_experts.", shared)})
    return {"model_type": "kimi_linear", "hidden_size": D, "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse"], "num_attention_heads": H, "num_experts": X,
            "num_experts_per_token": 2, "moe_renormalize": True, "rms_norm_eps": 1e-5,
            "routed_scaling_factor": 2.446, "tie_word_embeddings": False}, t


def bailingmoe3(H=2, K=3, W=4, X=4, F=5, RQ=0, inner=12, latent_sizes=(6, 5, 2, 7)):
    mlp = {n.removeprefix("mlp."): x for n, x in swiglu(inner).items()}
    shared = {n.removeprefix("mlp."): x for n, x in swiglu(F).items()}
    kda = {**delta(H, K, W, "dense.weight"), "A_log": (H,), "f_proj.weight": (H * K, D),
           "g_proj.weight": (H * K, D)}
    mla = {**latent(H, *latent_sizes, "dense.weight", RQ), "g_proj.weight": (H, D)}
    t = two_layers("model.word_embeddings.weight", "attention.", (kda, mla), "mlp.", mlp,
                   {**with_prefix("experts.", experts(X, F)), "gate.weight": (X, D),
                    "gate.expert_bias": (X,), **with_prefix("shared_experts.", shared)})
    return {"model_type": "bailing_hybrid", "hidden_size": D, "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"], "first_k_dense_replace": 1,
            "num_attention_heads": H, "num_experts": X, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "norm_topk_prob": True, "kda_lower_bound": -4.0,
            "rope_theta": 6e6, "tie_word_embeddings": False}, t


def mamba2_mixer(H=4, P=4, G=2, N=3, W=4):
    E = H * P
    C = E + 2 * G * N
    return {"in_proj.weight": (E + C + H, D), "conv1d.weight": (C, 1, W), "conv1d.bias": (C,),
            "dt_bias": (H,), "A_log": (H,), "D": (H,), "norm.weight": (E,),
            "out_proj.weight": (D, E)}


def granitehybrid(heads=2, KV=1, hd=4, F=12, **sizes):
    mixers = [with_prefix("mamba.", mamba2_mixer(**({"G": 1} | sizes))),
              with_prefix("self_attn.", attention(heads, KV, hd))]
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i, mixer in enumerate(mixers):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,), **mixer,
            "shared_mlp.input_linear.weight": (2 * F, D),
            "shared_mlp.output_linear.weight": (D, F)})
    return {"model_type": "granitemoehybrid", "hidden_size": D, "num_hidden_layers": 2,
            "layer_types": ["mamba", "attention"], "num_attention_heads": heads,
            "num_key_value_heads": KV, "num_local_experts": 0, "embedding_multiplier": 6.0,
            "residual_multiplier": 0.4, "attention_multiplier": 0.1, "logits_scaling": 4.0,
            "tie_word_embeddings": False}, randoms(s)


def bamba(heads=2, KV=1, hd=4, F=12, **sizes):
    mixers = [with_prefix("mamba.", mamba2_mixer(**({"G": 1} | sizes))),
              with_prefix("self_attn.", attention(heads, KV, hd))]
    s = {"model.embed_tokens.weight": (V, D), "model.final_layernorm.weight": (D,),
         "lm_head.weight": (V, D)}
    for i, mixer in enumerate(mixers):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "pre_ff_layernorm.weight": (D,), **mixer,
            **{n.replace("mlp.", "feed_forward."): shape for n, shape in swiglu(F).items()}})
    return {"model_type": "bamba", "hidden_size": D, "num_hidden_layers": 2,
            "attn_layer_indices": [1], "num_attention_heads": heads, "num_key_value_heads": KV,
            "rope_theta": 500.0, "tie_word_embeddings": False}, randoms(s)


def experts(X, F, gated=True):
    s = {f"{e}.up_proj.weight": (F, D) for e in range(X)}
    s |= {f"{e}.down_proj.weight": (D, F) for e in range(X)}
    return s | ({f"{e}.gate_proj.weight": (F, D) for e in range(X)} if gated else {})


def nemotron_h_moe(X=3, F=5, FS=6, **sizes):
    config, t = nemotron_h(**sizes)
    mixer = {**with_prefix("experts.", experts(X, F, gated=False)), "gate.weight": (X, D),
             "gate.e_score_correction_bias": (X,), "shared_experts.up_proj.weight": (FS, D),
             "shared_experts.down_proj.weight": (D, FS)}
    src = "backbone.layers.1.mixer."
    t = {n: x for n, x in t.items() if not n.startswith(src)} | randoms(with_prefix(src, mixer))
    return config | {"layers_block_type": ["mamba", "moe", "attention"], "n_routed_experts": X,
                     "num_experts_per_tok": 2, "routed_scaling_factor": 2.5}, t


def nemotron_h_latent(X=3, F=5, R=6, FS=6, **sizes):
    config, t = nemotron_h_moe(X, F, FS, **sizes)
    src = "backbone.layers.1.mixer."
    t |= randoms(with_prefix(src, {
        **{f"experts.{e}.up_proj.weight": (F, R) for e in range(X)},
        **{f"experts.{e}.down_proj.weight": (R, F) for e in range(X)},
        "fc1_latent_proj.weight": (R, D), "fc2_latent_proj.weight": (D, R)}))
    return config | {"moe_latent_size": R}, t


def granite_moe(X=3, FX=5, **sizes):
    config, t = granitehybrid(**sizes)
    for i in range(2):
        t |= randoms(with_prefix(f"model.layers.{i}.block_sparse_moe.", {
            "router.layer.weight": (X, D), "input_linear.weight": (X, 2 * FX, D),
            "output_linear.weight": (X, D, FX)}))
    return config | {"num_local_experts": X, "num_experts_per_tok": 2}, t


def nemotron_h(heads=2, KV=1, hd=4, F=12, **sizes):
    mixers = [mamba2_mixer(**sizes), {"up_proj.weight": (F, D), "down_proj.weight": (D, F)},
              attention(heads, KV, hd)]
    s = {"backbone.embeddings.weight": (V, D), "backbone.norm_f.weight": (D,),
         "lm_head.weight": (V, D)}
    for i, mixer in enumerate(mixers):
        s |= with_prefix(f"backbone.layers.{i}.",
                         {"norm.weight": (D,), **with_prefix("mixer.", mixer)})
    return {"model_type": "nemotron_h", "hidden_size": D, "num_hidden_layers": 3, "n_groups": 2,
            "layers_block_type": ["mamba", "mlp", "attention"], "num_attention_heads": heads,
            "num_key_value_heads": KV, "head_dim": hd, "tie_word_embeddings": False}, randoms(s)


def jamba(E=None, N=3, R=2, W=4, heads=2, KV=1, hd=4, F=12, X=3):
    """A Mamba layer with an MLP, an attention layer with experts."""
    E = E or 2 * D
    mixer = {"in_proj.weight": (2 * E, D), "conv1d.weight": (E, 1, W), "conv1d.bias": (E,),
             "x_proj.weight": (R + 2 * N, E), "dt_proj.weight": (E, R), "dt_proj.bias": (E,),
             "A_log": (E, N), "D": (E,), "out_proj.weight": (D, E), "dt_layernorm.weight": (R,),
             "b_layernorm.weight": (N,), "c_layernorm.weight": (N,)}
    mlp = {"gate_proj.weight": (F, D), "up_proj.weight": (F, D), "down_proj.weight": (D, F)}
    mixture = {"router.weight": (X, D), **with_prefix("experts.", experts(X, F))}
    s = {"model.embed_tokens.weight": (V, D), "model.final_layernorm.weight": (D,),
         "lm_head.weight": (V, D)}
    for i, (part, ffn) in enumerate([(with_prefix("mamba.", mixer), mlp),
                                     (with_prefix("self_attn.", attention(heads, KV, hd)),
                                      mixture)]):
        s |= with_prefix(f"model.layers.{i}.", {
            "input_layernorm.weight": (D,), "pre_ff_layernorm.weight": (D,), **part,
            **with_prefix("feed_forward.", ffn)})
    return {"model_type": "jamba", "hidden_size": D, "num_hidden_layers": 2,
            "num_attention_heads": heads, "num_key_value_heads": KV, "num_experts": X,
            "num_experts_per_tok": 2, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False}, randoms(s)


def lfm2(heads=2, KV=1, hd=4, F=12, W=3, X=0, FX=5):
    """X > 0: the second layer is a mixture."""
    mlp = {"w1.weight": (F, D), "w3.weight": (F, D), "w2.weight": (D, F)}
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    stacked = {n.replace(old, new): x for n, x in experts(X, FX).items()
               for old, new in names.items() if old in n}
    sparse = {**with_prefix("experts.", stacked), "gate.weight": (X, D), "expert_bias": (X,)}
    full = {n.replace("o_proj", "out_proj"): x for n, x in attention(heads, KV, hd).items()}
    mixers = [with_prefix("conv.", {"in_proj.weight": (3 * D, D), "conv.weight": (D, 1, W),
                                    "out_proj.weight": (D, D)}),
              with_prefix("self_attn.", {**full, "q_layernorm.weight": (hd,),
                                         "k_layernorm.weight": (hd,)})]
    s = {"model.embed_tokens.weight": (V, D), "model.embedding_norm.weight": (D,)}
    for i, mixer in enumerate(mixers):
        s |= with_prefix(f"model.layers.{i}.", {
            "operator_norm.weight": (D,), "ffn_norm.weight": (D,), **mixer,
            **with_prefix("feed_forward.", sparse if X and i else mlp)})
    config = {"model_type": "lfm2_moe" if X else "lfm2", "hidden_size": D, "num_hidden_layers": 2,
              "layer_types": ["conv", "full_attention"], "num_attention_heads": heads,
              "num_key_value_heads": KV, "norm_eps": 1e-5, "tie_word_embeddings": True}
    more = {"num_experts": X, "num_experts_per_tok": 2, "num_dense_layers": 1}
    return config | (more if X else {}), randoms(s)


def lfm2moe(X=3, **sizes):
    return lfm2(X=X, **sizes)


def falcon_h1(heads=2, KV=1, hd=4, F=12, norm=True, **sizes):
    layer = {"input_layernorm.weight": (D,), "pre_ff_layernorm.weight": (D,),
             **with_prefix("mamba.", mamba2_mixer(**sizes)),
             **with_prefix("self_attn.", attention(heads, KV, hd)),
             **{name.replace("mlp", "feed_forward"): shape for name, shape in swiglu(F).items()}}
    if not norm:
        del layer["mamba.norm.weight"]
    s = {"model.embed_tokens.weight": (V, D), "model.final_layernorm.weight": (D,),
         "lm_head.weight": (V, D)}
    for i in range(L):
        s |= with_prefix(f"model.layers.{i}.", layer)
    return {"model_type": "falcon_h1", "hidden_size": D, "num_hidden_layers": L,
            "num_attention_heads": heads, "num_key_value_heads": KV, "head_dim": hd,
            "mamba_n_groups": 2, "mamba_rms_norm": norm, "mamba_norm_before_gate": False,
            "embedding_multiplier": 2.0, "lm_head_multiplier": 4.0, "ssm_in_multiplier": 0.5,
            "ssm_multipliers": [2.0, 4.0, 8.0, 16.0, 32.0], "ssm_out_multiplier": 0.25,
            "attention_in_multiplier": 3.0, "attention_out_multiplier": 5.0, "key_multiplier": 7.0,
            "mlp_multipliers": [9.0, 11.0], "tie_word_embeddings": False}, randoms(s)


def hybrid(make=delta_net, **options):
    """A model of fla whose second layer is attention with 4 heads, 2 of them for k and v."""
    config, t = make()
    a = "model.layers.1.attn."
    t = {n: x for n, x in t.items() if not n.startswith(a)}
    t |= randoms(with_prefix(a, attention(4, 2, D // 4)))
    return config | {"attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, **options}}, t

"""Tiny checkpoints in every layout, with random weights. Sizes differ from each other so that a swapped pair of them cannot pass."""

import numpy as np

D, V, L, I = 8, 11, 2, 20


def rng():
    return np.random.default_rng(7)


def randoms(shapes):
    g = rng()
    return {name: g.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def shell(mixer, layers=L):
    """fla's language model around mixer(layer) -> {name: shape}."""
    s = {"model.embeddings.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(layers):
        p = f"model.layers.{i}."
        s |= {p + "attn_norm.weight": (D,), p + "mlp_norm.weight": (D,), p + "mlp.gate_proj.weight": (I, D),
              p + "mlp.up_proj.weight": (I, D), p + "mlp.down_proj.weight": (D, I)}
        s |= {p + "attn." + n: shape for n, shape in mixer(i).items()}
    return randoms(s)


def config(model_type, **kw):
    return {"model_type": model_type, "hidden_size": D, "num_hidden_layers": L, "norm_eps": 1e-6, "tie_word_embeddings": False, **kw}


def delta_net(H=2, K=3, P=5, W=4):
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "k_proj.weight": (H * K, D), "v_proj.weight": (H * P, D), "b_proj.weight": (H, D),
                "q_conv1d.weight": (H * K, 1, W), "k_conv1d.weight": (H * K, 1, W), "v_conv1d.weight": (H * P, 1, W),
                "o_norm.weight": (P,), "o_proj.weight": (D, H * P)}
    return config("delta_net", num_heads=H), shell(mixer)


def gated_delta_net(H=2, HV=4, K=3, P=5, W=4):
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "k_proj.weight": (H * K, D), "v_proj.weight": (HV * P, D), "b_proj.weight": (HV, D),
                "a_proj.weight": (HV, D), "A_log": (HV,), "dt_bias": (HV,), "g_proj.weight": (HV * P, D),
                "q_conv1d.weight": (H * K, 1, W), "k_conv1d.weight": (H * K, 1, W), "v_conv1d.weight": (HV * P, 1, W),
                "o_norm.weight": (P,), "o_proj.weight": (D, HV * P)}
    return config("gated_deltanet", num_heads=H, num_v_heads=HV), shell(mixer)


def delta_product(layout, H=2, K=3, P=5, W=4, n=3):
    """The same weights in layout A, B or C."""
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "k_proj.weight": (n * H * K, D), "v_proj.weight": (n * H * P, D), "b_proj.weight": (n * H, D),
                "a_proj.weight": (H, D), "A_log": (H,), "dt_bias": (H,), "q_conv1d.weight": (H * K, 1, W),
                "k_conv1d.weight": (n * H * K, 1, W), "v_conv1d.weight": (n * H * P, 1, W),
                "o_norm.weight": (P,), "o_proj.weight": (D, H * P)}
    t = shell(mixer)
    c = config("gated_deltaproduct", num_heads=H, num_householder=n, allow_neg_eigval=True, use_forget_gate=True)
    c["use_gate" if layout == "A" else "use_output_gate"] = False
    if layout == "C":
        return c, t
    out = {}
    for name, x in t.items():
        part = name.rsplit(".", 2)
        if len(part) == 3 and part[1] in ("k_proj", "v_proj", "b_proj", "k_conv1d", "v_conv1d") and ".attn." in name:
            for j, piece in enumerate(np.split(x, n)):
                out[f"{part[0]}.{part[1]}s.{j}.weight"] = piece
        elif layout == "A" and name.endswith("q_conv1d.weight"):
            for j in range(n):
                out[name.replace("q_conv1d", f"q_conv1ds.{j}")] = x + j
        else:
            out[name] = x
    return c, out


def kda(H=2, K=3, P=5, W=4):
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "k_proj.weight": (H * K, D), "v_proj.weight": (H * P, D), "b_proj.weight": (H, D),
                "f_proj.0.weight": (P, D), "f_proj.1.weight": (H * K, P), "A_log": (1, 1, H, 1), "dt_bias": (H * K,),
                "g_proj.0.weight": (P, D), "g_proj.1.weight": (H * P, P), "g_proj.1.bias": (H * P,),
                "q_conv1d.weight": (H * K, 1, W), "k_conv1d.weight": (H * K, 1, W), "v_conv1d.weight": (H * P, 1, W),
                "o_norm.weight": (P,), "o_proj.weight": (D, H * P)}
    return config("kda", num_heads=H), shell(mixer)


def gla(H=4, KV=2, K=3, P=5, norm="g_norm.weight"):
    def mixer(i):
        s = {"q_proj.weight": (H * K, D), "k_proj.weight": (KV * K, D), "v_proj.weight": (KV * P, D), "gk_proj.0.weight": (6, D),
             "gk_proj.1.weight": (KV * K, 6), "gk_proj.1.bias": (KV * K,), "g_proj.weight": (H * P, D), "o_proj.weight": (D, H * P)}
        return s | ({norm: (P,)} if norm else {})
    return config("gla", num_heads=H, num_kv_heads=KV), shell(mixer)


def retnet(H=4, KV=2, K=6, P=5):
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "k_proj.weight": (KV * K, D), "v_proj.weight": (KV * P, D), "g_proj.weight": (H * P, D),
                "g_norm.weight": (P,), "o_proj.weight": (D, H * P)}
    return config("retnet", num_heads=H, num_kv_heads=KV), shell(mixer)


def hgrn2(H=2, K=4, layers=L):
    def mixer(i):
        return {"q_proj.weight": (H * K, D), "f_proj.weight": (H * K, D), "i_proj.weight": (D, D),
                "g_norm.weight": (D,), "o_proj.weight": (D, D)}
    t = shell(mixer, layers)
    t["model.lower_bounds"] = rng().standard_normal((layers, H * K)).astype(np.float32)
    return config("hgrn2", num_heads=H) | {"num_hidden_layers": layers}, t


def mamba(E=2 * D, N=3, R=2, W=4, embedding="backbone.embeddings.weight"):
    s = {embedding: (V, D), "backbone.norm_f.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        p = f"backbone.layers.{i}."
        s |= {p + "norm.weight": (D,), p + "mixer.in_proj.weight": (2 * E, D), p + "mixer.conv1d.weight": (E, 1, W),
              p + "mixer.conv1d.bias": (E,),
              p + "mixer.x_proj.weight": (R + 2 * N, E), p + "mixer.dt_proj.weight": (E, R), p + "mixer.dt_proj.bias": (E,),
              p + "mixer.A_log": (E, N), p + "mixer.D": (E,), p + "mixer.out_proj.weight": (D, E)}
    return {"model_type": "mamba", "hidden_size": D, "num_hidden_layers": L, "tie_word_embeddings": False}, randoms(s)


def mamba2(H=4, P=4, G=2, N=3, W=4):
    E = H * P
    C = E + 2 * G * N
    s = {"backbone.embeddings.weight": (V, D), "backbone.norm_f.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        p = f"backbone.layers.{i}."
        s |= {p + "norm.weight": (D,), p + "mixer.in_proj.weight": (E + C + H, D), p + "mixer.conv1d.weight": (C, 1, W),
              p + "mixer.conv1d.bias": (C,),
              p + "mixer.dt_bias": (H,), p + "mixer.A_log": (H,), p + "mixer.D": (H,), p + "mixer.norm.weight": (E,),
              p + "mixer.out_proj.weight": (D, E)}
    return {"model_type": "mamba2", "hidden_size": D, "num_hidden_layers": L, "n_groups": G, "tie_word_embeddings": False}, randoms(s)


def rwkv6_official(H=2, N=4, r=3, r2=5, F=12):
    s = {"emb.weight": (V, D), "head.weight": (V, D), "ln_out.weight": (D,), "ln_out.bias": (D,),
         "blocks.0.ln0.weight": (D,), "blocks.0.ln0.bias": (D,)}
    for i in range(L):
        p = f"blocks.{i}."
        for n in ("ln1", "ln2", "att.ln_x"):
            s |= {f"{p}{n}.weight": (D,), f"{p}{n}.bias": (D,)}
        s |= {f"{p}att.time_maa_{c}": (1, 1, D) for c in "xwkvrg"}
        s |= {p + "att.time_maa_w1": (D, 5 * r), p + "att.time_maa_w2": (5, r, D), p + "att.time_decay": (1, 1, D),
              p + "att.time_decay_w1": (D, r2), p + "att.time_decay_w2": (r2, D), p + "att.time_faaaa": (H, N)}
        s |= {f"{p}att.{n}.weight": (D, D) for n in ("receptance", "key", "value", "gate", "output")}
        s |= {p + "ffn.time_maa_k": (1, 1, D), p + "ffn.time_maa_r": (1, 1, D), p + "ffn.key.weight": (F, D),
              p + "ffn.value.weight": (D, F), p + "ffn.receptance.weight": (D, D)}
    return None, randoms(s)


def rwkv6_fla_of(official, H=2, r=3):
    """The official weights under fla's names, layouts and order of groups (r,w,k,v,g)."""
    order = [3, 0, 1, 2, 4]                # of w,k,v,r,g
    t = {"model.embeddings.weight": official["emb.weight"], "lm_head.weight": official["head.weight"]}
    for x in ("weight", "bias"):
        t[f"model.norm.{x}"] = official[f"ln_out.{x}"]
        t[f"model.layers.0.pre_norm.{x}"] = official[f"blocks.0.ln0.{x}"]
    for i in range(L):
        o, p = f"blocks.{i}.", f"model.layers.{i}."
        for x in ("weight", "bias"):
            t[f"{p}attn_norm.{x}"] = official[f"{o}ln1.{x}"]
            t[f"{p}ffn_norm.{x}"] = official[f"{o}ln2.{x}"]
            t[f"{p}attn.g_norm.{x}"] = official[f"{o}att.ln_x.{x}"]
        t[p + "attn.x_proj.0.mu"] = official[o + "att.time_maa_x"].reshape(-1)
        w1 = official[o + "att.time_maa_w1"].T.reshape(5, r, D)
        t[p + "attn.x_proj.0.linear.weight"] = w1[order].reshape(5 * r, D)
        t[p + "attn.x_proj.2.weight"] = official[o + "att.time_maa_w2"][order].transpose(2, 0, 1).reshape(D, 5 * r)
        t[p + "attn.x_bias"] = np.stack([official[f"{o}att.time_maa_{c}"].reshape(-1) for c in "rwkvg"])
        t[p + "attn.w_proj.linear.lora.0.weight"] = official[o + "att.time_decay_w1"].T
        t[p + "attn.w_proj.linear.lora.2.weight"] = official[o + "att.time_decay_w2"].T
        t[p + "attn.w_proj.linear.lora.2.bias"] = official[o + "att.time_decay"].reshape(-1)
        t[p + "attn.bonus"] = official[o + "att.time_faaaa"]
        for c, n in (("r", "receptance"), ("k", "key"), ("v", "value"), ("g", "gate")):
            t[f"{p}attn.{c}_proj.linear.weight"] = official[f"{o}att.{n}.weight"]
        t[p + "attn.o_proj.weight"] = official[o + "att.output.weight"]
        for n in ("key", "receptance"):
            t[f"{p}ffn.{n}.mu"] = official[f"{o}ffn.time_maa_{n[0]}"].reshape(-1)
            t[f"{p}ffn.{n}.linear.weight"] = official[f"{o}ffn.{n}.weight"]
        t[p + "ffn.value.weight"] = official[o + "ffn.value.weight"]
    return config("rwkv6", num_heads=H) | {"norm_eps": 1e-5}, t


RANKS = {"w": 3, "a": 5, "v": 2, "g": 7}


def rwkv7_official(H=2, N=4):
    s = {"emb.weight": (V, D), "head.weight": (V, D), "ln_out.weight": (D,), "ln_out.bias": (D,),
         "blocks.0.ln0.weight": (D,), "blocks.0.ln0.bias": (D,)}
    for i in range(L):
        p = f"blocks.{i}."
        for n in ("ln1", "ln2", "att.ln_x"):
            s |= {f"{p}{n}.weight": (D,), f"{p}{n}.bias": (D,)}
        s |= {f"{p}att.x_{c}": (1, 1, D) for c in "rwkvag"}
        for c, r in RANKS.items():
            s |= {f"{p}att.{c}1": (D, r), f"{p}att.{c}2": (r, D)}
            if c != "g":
                s[f"{p}att.{c}0"] = (1, 1, D)
        s |= {p + "att.k_k": (1, 1, D), p + "att.k_a": (1, 1, D), p + "att.r_k": (H, N)}
        s |= {f"{p}att.{n}.weight": (D, D) for n in ("receptance", "key", "value", "output")}
        s |= {p + "ffn.x_k": (1, 1, D), p + "ffn.key.weight": (4 * D, D), p + "ffn.value.weight": (D, 4 * D)}
    return None, randoms(s)


def rwkv7_fla_of(official, fused_lerps=False):
    t = {"model.embeddings.weight": official["emb.weight"], "lm_head.weight": official["head.weight"]}
    for x in ("weight", "bias"):
        t[f"model.norm.{x}"] = official[f"ln_out.{x}"]
        t[f"model.layers.0.pre_norm.{x}"] = official[f"blocks.0.ln0.{x}"]
    for i in range(L):
        o, p = f"blocks.{i}.", f"model.layers.{i}."
        for x in ("weight", "bias"):
            t[f"{p}attn_norm.{x}"] = official[f"{o}ln1.{x}"]
            t[f"{p}ffn_norm.{x}"] = official[f"{o}ln2.{x}"]
            t[f"{p}attn.g_norm.{x}"] = official[f"{o}att.ln_x.{x}"]
        lerps = [official[f"{o}att.x_{c}"] for c in "rwkvag"]
        if fused_lerps:
            t[p + "attn.x_x"] = np.stack([x.reshape(-1) for x in lerps])
        else:
            t |= {f"{p}attn.x_{c}": x for c, x in zip("rwkvag", lerps)}
        for c in RANKS:
            if c == "v" and i == 0:
                continue
            t[f"{p}attn.{c}_lora.lora.0.weight"] = official[f"{o}att.{c}1"].T
            t[f"{p}attn.{c}_lora.lora.2.weight"] = official[f"{o}att.{c}2"].T
            if c != "g":
                t[f"{p}attn.{c}_lora.lora.2.bias"] = official[f"{o}att.{c}0"].reshape(-1)
        for n in ("k_k", "k_a"):
            t[f"{p}attn.{n}"] = official[f"{o}att.{n}"].reshape(-1)
        t[p + "attn.r_k"] = official[o + "att.r_k"]
        for c, n in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            t[f"{p}attn.{c}_proj.weight"] = official[f"{o}att.{n}.weight"]
        t[p + "ffn.x_k"] = official[o + "ffn.x_k"].reshape(-1)
        for n in ("key", "value"):
            t[f"{p}ffn.{n}.weight"] = official[f"{o}ffn.{n}.weight"]
    return config("rwkv7", head_dim=4, fuse_norm=False) | {"norm_eps": 64e-5 / 4}, t


def xlstm(H=2, K=3, P=4, F=12, fused=False):
    s = {"backbone.embeddings.weight": (V, D), "backbone.out_norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        p = f"backbone.blocks.{i}."
        m = p + "mlstm_layer."
        s |= {p + "norm_mlstm.weight": (D,), p + "norm_ffn.weight": (D,), m + "q.weight": (H * K, D), m + "k.weight": (H * K, D),
              m + "v.weight": (H * P, D), m + "ogate_preact.weight": (H * P, D), m + "igate_preact.weight": (H, D),
              m + "igate_preact.bias": (H,), m + "fgate_preact.weight": (H, D), m + "fgate_preact.bias": (H,),
              m + "multihead_norm.weight": (H * P,), m + "out_proj.weight": (D, H * P),
              p + "ffn.proj_up_gate.weight": (F, D), p + "ffn.proj_up.weight": (F, D), p + "ffn.proj_down.weight": (D, F)}
    t = randoms(s)
    if fused:
        for i in range(L):
            p = f"backbone.blocks.{i}."
            m = p + "mlstm_layer."
            t[m + "qkv_opreact.weight"] = np.concatenate([t.pop(f"{m}{n}.weight") for n in ("q", "k", "v", "ogate_preact")])
            for x in ("weight", "bias"):
                t[f"{m}ifgate_preact.{x}"] = np.concatenate([t.pop(f"{m}{g}gate_preact.{x}") for g in "if"])
            t[p + "ffn.proj_up_gate_z.weight"] = np.concatenate([t.pop(p + f"ffn.{n}.weight") for n in ("proj_up_gate", "proj_up")])
    return {"model_type": "xlstm", "hidden_size": D, "num_blocks": L, "num_heads": H, "tie_word_embeddings": False}, t


def llama(H=4, KV=2, hd=2, F=12):
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        s |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,), a + "q_proj.weight": (H * hd, D),
              a + "k_proj.weight": (KV * hd, D), a + "v_proj.weight": (KV * hd, D), a + "o_proj.weight": (D, H * hd),
              p + "mlp.gate_proj.weight": (F, D), p + "mlp.up_proj.weight": (F, D), p + "mlp.down_proj.weight": (D, F)}
    return {"model_type": "llama", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": KV,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "rope_theta": 5000.0, "tie_word_embeddings": False}, randoms(s)


def olmo_hybrid(H=2, K=3, P=6, W=4, F=12, hd=4):
    kinds = ["linear_attention", "full_attention"]
    s = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i, kind in enumerate(kinds):
        p = f"model.layers.{i}."
        s |= {p + "mlp.gate_proj.weight": (F, D), p + "mlp.up_proj.weight": (F, D), p + "mlp.down_proj.weight": (D, F)}
        if kind == "linear_attention":
            a = p + "linear_attn."
            s |= {p + "attention_layer_norm.weight": (D,), p + "feedforward_layer_norm.weight": (D,)}
            s |= {a + "q_proj.weight": (H * K, D), a + "k_proj.weight": (H * K, D), a + "v_proj.weight": (H * P, D),
                  a + "b_proj.weight": (H, D), a + "a_proj.weight": (H, D), a + "A_log": (H,), a + "dt_bias": (H,),
                  a + "g_proj.weight": (H * P, D), a + "o_norm.weight": (P,),
                  a + "o_proj.weight": (D, H * P), a + "q_conv1d.weight": (H * K, 1, W), a + "k_conv1d.weight": (H * K, 1, W),
                  a + "v_conv1d.weight": (H * P, 1, W)}
        else:
            a = p + "self_attn."
            s |= {p + "post_attention_layernorm.weight": (D,), p + "post_feedforward_layernorm.weight": (D,)}
            s |= {a + "q_proj.weight": (2 * hd, D), a + "k_proj.weight": (hd, D), a + "v_proj.weight": (hd, D),
                  a + "o_proj.weight": (D, 2 * hd),
                  a + "q_norm.weight": (2 * hd,), a + "k_norm.weight": (hd,)}
    return {"model_type": "olmo_hybrid", "hidden_size": D, "num_hidden_layers": 2, "layer_types": kinds, "num_attention_heads": 2,
            "num_key_value_heads": 1, "linear_num_key_heads": H, "linear_num_value_heads": H, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512, "tie_word_embeddings": False}, randoms(s)

"""Names, shapes, values: what each family becomes. Expected values are written out here, not taken from the converter."""

import numpy as np
import pytest
import tiny
from tiny import D, I, L, V

from lrnn_convert.families import rwkv7


def same(a, b):
    return np.array_equal(a, b)


def test_delta_net(bench):
    config, t = tiny.delta_net()
    f = bench.convert(config | {"allow_neg_eigval": True, "qk_norm": "sum", "qk_activation": "elu"}, t)
    kv = f.kv
    assert kv["general.architecture"] == "lrnn" and kv["lrnn.family"] == "delta_net" and kv["lrnn.format_version"] == 1
    assert (kv["lrnn.embedding_length"], kv["lrnn.block_count"], kv["lrnn.vocab_size"], kv["lrnn.feed_forward_length"]) == (D, L, V, I)
    assert (kv["lrnn.head_count"], kv["lrnn.key_length"], kv["lrnn.value_length"], kv["lrnn.conv_width"]) == (2, 3, 5, 4)
    assert kv["lrnn.beta"] is True and kv["lrnn.qk_norm"] == "sum" and kv["lrnn.qk_activation"] == "elu"
    assert kv["lrnn.output_gate"] == "none"
    assert f.ne["token_embd.weight"] == [D, V] and f.ne["blk.0.ffn_down.weight"] == [I, D] and f.ne["blk.1.attn_v.weight"] == [D, 10]
    assert f.ne["blk.0.ssm_conv1d_v.weight"] == [4, 10]
    p = "model.layers.1."
    assert same(f.data["blk.1.attn_k.weight"], t[p + "attn.k_proj.weight"])
    assert same(f.data["blk.1.ssm_conv1d_q.weight"], t[p + "attn.q_conv1d.weight"][:, 0])
    assert same(f.data["blk.1.ffn_norm.weight"], t[p + "mlp_norm.weight"])
    assert len(f.data) == len(t)


def test_gated_delta_net_keeps_value_heads_in_order(bench):
    config, t = tiny.gated_delta_net()
    f = bench.convert(config | {"output_gate_activation": "sigmoid"}, t)
    assert (f.kv["lrnn.head_count"], f.kv["lrnn.head_count_value"]) == (2, 4) and f.kv["lrnn.output_gate"] == "sigmoid"
    assert same(f.data["blk.0.attn_v.weight"], t["model.layers.0.attn.v_proj.weight"])
    assert np.allclose(f.data["blk.0.ssm_a"], -np.exp(t["model.layers.0.attn.A_log"]), rtol=1e-6)
    assert same(f.data["blk.0.ssm_dt.bias"], t["model.layers.0.attn.dt_bias"])


def test_gated_delta_net_ignores_the_unused_d(bench):
    config, t = tiny.gated_delta_net()
    t |= {f"model.layers.{i}.attn.D": np.ones(4, np.float32) for i in range(L)}
    assert "blk.0.ssm_d" not in bench.convert(config, t).data


@pytest.mark.parametrize("layout", "AB")
def test_delta_product_layouts_are_the_same_model(bench, layout):
    new = bench.convert(*tiny.delta_product("C"))
    assert new.kv["lrnn.householder_count"] == 3 and new.kv["lrnn.gate"] == "head" and new.kv["lrnn.eigenvalues"] == "[-1,1]"
    old = bench.convert(*tiny.delta_product(layout))
    assert old.data.keys() == new.data.keys()
    assert all(same(old.data[n], new.data[n]) for n in new.data)
    del old.kv["lrnn.source_config"], new.kv["lrnn.source_config"]
    assert {k: v for k, v in old.kv.items()} == {k: v for k, v in new.kv.items()}


def test_delta_product_checks_the_number_of_factors(bench):
    config, t = tiny.delta_product("C")
    code, err = bench.refuse(config | {"num_householder": 2}, t)
    assert code == 4 and "num_householder" in err


def test_kda(bench):
    config, t = tiny.kda()
    f = bench.convert(config | {"lower_bound": -5.0}, t)
    assert f.kv["lrnn.gate_lower_bound"] == -5.0 and f.ne["blk.0.ssm_a"] == [2] and f.ne["blk.0.ssm_dt.bias"] == [6]
    assert same(f.data["blk.0.ssm_f_b.weight"], t["model.layers.0.attn.f_proj.1.weight"])
    assert same(f.data["blk.0.ssm_g_b.bias"], t["model.layers.0.attn.g_proj.1.bias"])


@pytest.mark.parametrize("norm", ["g_norm.weight", "g_norm_swish_gate.weight"])
def test_gla(bench, norm):
    config, t = tiny.gla(norm=norm)
    f = bench.convert(config | {"clamp_min": -3.0}, t)
    assert (f.kv["lrnn.head_count"], f.kv["lrnn.head_count_kv"]) == (4, 2)
    assert f.kv["lrnn.gate_normalizer"] == 16.0 and f.kv["lrnn.gate_clamp_min"] == -3.0 and f.kv["lrnn.output_gate"] == "silu"
    assert same(f.data["blk.0.ssm_norm.weight"], t["model.layers.0.attn." + norm])


def test_gla_without_affine_norm_has_ones(bench):
    config, t = tiny.gla(norm=None)
    f = bench.convert(config | {"elementwise_affine": False}, t)
    assert same(f.data["blk.0.ssm_norm.weight"], np.ones(5, np.float32))


def test_retnet_repeats_shared_keys(bench):
    config, t = tiny.retnet()
    f = bench.convert(config | {"use_short_conv": True}, t)            # which has no effect there
    k = t["model.layers.0.attn.k_proj.weight"].reshape(2, 6, D)
    assert same(f.data["blk.0.attn_k.weight"].reshape(4, 6, D), k[[0, 0, 1, 1]])
    assert f.kv["lrnn.rope_theta"] == 10000.0


def test_hgrn2_lower_bounds(bench):
    config, t = tiny.hgrn2(layers=3)
    f = bench.convert(config, t)
    x = t["model.lower_bounds"].astype(np.float64)
    p = np.exp(x) / np.exp(x).sum(axis=0)
    bound = np.cumsum(p, axis=0) - p[0]
    assert "blk.0.ssm_lower_bound.weight" not in f.data
    assert np.allclose(f.data["blk.2.ssm_lower_bound.weight"], bound[2], atol=1e-6)
    assert np.isclose(f.kv["lrnn.output_norm_epsilon"], 1e-5)          # whatever norm_eps says


def test_mamba_is_llama_cpps(bench):
    config, t = tiny.mamba()
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "mamba" and f.kv["mamba.context_length"] == 1048576 and f.kv["mamba.attention.head_count"] == 0
    assert [f.kv[f"mamba.ssm.{key}"] for key in ("inner_size", "state_size", "time_step_rank", "conv_kernel")] == [16, 3, 2, 4]
    assert f.ne["blk.0.ssm_a"] == [3, 16] and f.ne["blk.0.ssm_in.weight"] == [D, 32] and f.ne["blk.0.ssm_conv1d.weight"] == [4, 16]
    assert same(f.data["blk.0.ssm_in.weight"], t["backbone.layers.0.mixer.in_proj.weight"])
    assert np.allclose(f.data["blk.1.ssm_a"], -np.exp(t["backbone.layers.1.mixer.A_log"]), rtol=1e-6)


def test_mamba_of_state_spaces(bench):
    _, t = tiny.mamba(embedding="backbone.embedding.weight")
    del t["lm_head.weight"]
    f = bench.convert({"d_model": D, "n_layer": L, "vocab_size": V, "ssm_cfg": {}, "rms_norm": True, "pad_vocab_size_multiple": 8}, t)
    assert f.kv["general.architecture"] == "mamba" and "output.weight" not in f.data


def test_mamba_with_another_expansion_is_ours(bench):
    f = bench.convert(*tiny.mamba(E=3 * D))
    assert f.kv["general.architecture"] == "lrnn" and f.kv["lrnn.state_length"] == 3 and f.kv["lrnn.final_norm"] is True


def test_mamba_without_conv_bias_has_zeros(bench):
    config, t = tiny.mamba()
    t = {n: x for n, x in t.items() if not n.endswith("conv1d.bias")}
    assert not bench.convert(config, t).data["blk.0.ssm_conv1d.bias"].any()


def test_mamba_with_biases_is_ours(bench):
    config, t = tiny.mamba()
    more = tiny.randoms({f"backbone.layers.{i}.mixer.{n}.bias": (w,) for i in range(L) for n, w in (("in_proj", 32), ("out_proj", D))})
    f = bench.convert(config | {"use_bias": True}, t | more)
    assert f.kv["general.architecture"] == "lrnn" and "biases" in bench.err
    assert same(f.data["blk.1.ssm_in.bias"], more["backbone.layers.1.mixer.in_proj.bias"])
    assert same(f.data["blk.1.ssm_out.bias"], more["backbone.layers.1.mixer.out_proj.bias"])


@pytest.mark.parametrize("make", [tiny.mamba, tiny.mamba2])
def test_mamba_with_layer_norm_is_ours(bench, make):
    config, t = make()
    norms = [n for n in t if n.endswith("norm_f.weight") or n.endswith(".norm.weight") and "mixer" not in n]
    biased = t | tiny.randoms({n.replace("weight", "bias"): (D,) for n in norms})
    f = bench.convert(config | {"rms_norm": False}, biased)
    assert f.kv["general.architecture"] == "lrnn"
    assert same(f.data["blk.1.attn_norm.bias"], biased["backbone.layers.1.norm.bias"])
    assert same(f.data["output_norm.bias"], biased["backbone.norm_f.bias"])
    bench.out.unlink()
    assert "rms_norm" in bench.refuse(config | {"rms_norm": False}, t)[1]              # the bias is what makes it one
    assert "rms_norm" in bench.refuse(config | {"rms_norm": True}, biased)[1]


def test_falcon_mamba(bench):
    config, t = tiny.mamba()
    config |= {"model_type": "falcon_mamba", "layer_norm_epsilon": 1e-5}
    f = bench.convert(config, t)                           # the norms' eps has a default of its own
    assert f.kv["general.architecture"] == "lrnn" and f.kv["lrnn.family"] == "mamba"
    assert np.isclose(f.kv["lrnn.dt_b_c_norm_epsilon"], 1e-6)
    f = bench.convert(config | {"mixer_rms_eps": 1e-5}, t)  # llama.cpp has one eps for all
    assert f.kv["general.architecture"] == "mamba" and f.kv["mamba.ssm.dt_b_c_rms"] is True


def test_mamba_toy_without_a_final_norm(bench):
    _, t = tiny.mamba(W=1)
    t = {n.replace("backbone.embeddings", "token_embedding").replace("backbone.", ""): x for n, x in t.items() if "norm_f" not in n}
    f = bench.convert(None, t, "--eigenvalues", "signed")
    assert f.kv["lrnn.final_norm"] is False and "output_norm.weight" not in f.data and f.kv["lrnn.eigenvalues"] == "[-1,1]"
    # a convolution of width 1 gets an older tap of zero
    assert f.kv["lrnn.conv_width"] == 2
    taps = f.data["blk.0.ssm_conv1d.weight"]
    assert same(taps[:, 1], t["layers.0.mixer.conv1d.weight"][:, 0, 0]) and not taps[:, 0].any()


def test_mamba2(bench):
    config, t = tiny.mamba2()
    f = bench.convert(config | {"time_step_limit": [0.0, float("inf")]}, t)            # json writes a bare Infinity
    assert f.kv["general.architecture"] == "mamba2" and f.kv["mamba2.ssm.time_step_rank"] == 4 and f.kv["mamba2.ssm.group_count"] == 2
    assert f.ne["blk.0.ssm_a"] == [1, 4] and f.ne["blk.0.ssm_d"] == [1, 4] and f.ne["blk.0.ssm_norm.weight"] == [8, 2]


def test_mamba2_with_a_limit_is_ours(bench):
    config, t = tiny.mamba2()
    f = bench.convert(config | {"time_step_limit": [0.001, {"__float__": "Infinity"}]}, t)
    assert f.kv["general.architecture"] == "lrnn" and np.isclose(f.kv["lrnn.dt_min"], 0.001) and "lrnn.dt_max" not in f.kv
    assert (f.kv["lrnn.head_count"], f.kv["lrnn.state_length"], f.kv["lrnn.group_count"], f.kv["lrnn.value_length"]) == (4, 3, 2, 4)


def test_rwkv6_official_is_llama_cpps(bench):
    _, t = tiny.rwkv6_official()
    f = bench.convert(None, t)
    assert f.kv["general.architecture"] == "rwkv6" and f.kv["rwkv6.wkv.head_size"] == 4 and f.kv["rwkv6.time_mix_extra_dim"] == 3
    assert f.ne["blk.0.time_mix_w1.weight"] == [D, 15] and f.ne["blk.0.time_mix_w2.weight"] == [3, D, 5]
    assert f.ne["blk.0.time_mix_lerp_fused.weight"] == [D, 1, 1, 5]
    # h + dx (maa + tanh(h @ w1) @ w2), computed from the file and from the checkpoint
    h = np.random.default_rng(1).standard_normal(D)
    mixed = np.tanh(h @ t["blocks.0.att.time_maa_w1"]).reshape(5, 3)
    again = np.tanh(f.data["blk.0.time_mix_w1.weight"] @ h).reshape(5, 3)
    for i, c in enumerate("wkvrg"):
        want = t[f"blocks.0.att.time_maa_{c}"].reshape(-1) + mixed[i] @ t["blocks.0.att.time_maa_w2"][i]
        got = f.data["blk.0.time_mix_lerp_fused.weight"][i].reshape(-1) + f.data["blk.0.time_mix_w2.weight"][i] @ again[i]
        assert np.allclose(want, got, atol=1e-5)


def test_rwkv6_of_fla_is_the_same_but_for_eps(bench):
    _, t = tiny.rwkv6_official()
    official = bench.convert(None, t)
    fla = bench.convert(*tiny.rwkv6_fla_of(t))
    assert fla.kv["general.architecture"] == "lrnn" and np.isclose(fla.kv["lrnn.output_norm_epsilon"], 1e-5)
    assert fla.data.keys() == official.data.keys()
    assert all(same(fla.data[n], official.data[n]) for n in fla.data)


@pytest.mark.parametrize("fused_lerps", [False, True])
def test_rwkv7_of_fla_is_the_official_one(bench, monkeypatch, fused_lerps):
    monkeypatch.setattr(rwkv7, "LLAMA_CPP_HEAD", 4)        # or the tiny model would have to be 64 wide
    _, t = tiny.rwkv7_official()
    official = bench.convert(None, t)
    assert official.kv["general.architecture"] == "rwkv7" and official.kv["lrnn.eigenvalues"] == "family"
    assert official.ne["blk.1.time_mix_w1.weight"] == [D, 3] and official.ne["blk.1.time_mix_v2.weight"] == [2, D]
    assert same(official.data["blk.0.time_mix_v1.weight"], official.data["blk.0.time_mix_a1.weight"])   # read there, never used
    assert same(official.data["blk.0.time_mix_w2.weight"], t["blocks.0.att.w2"].T)
    (bench.folder / "config.json").unlink(missing_ok=True)
    fla = bench.convert(*tiny.rwkv7_fla_of(t, fused_lerps))
    assert fla.kv["general.architecture"] == "rwkv7"       # head_dim · norm_eps is 64e-5
    assert fla.data.keys() == official.data.keys()
    assert all(same(fla.data[n], official.data[n]) for n in fla.data)


def test_rwkv7_with_short_heads_is_ours(bench):
    f = bench.convert(*tiny.rwkv7_official())
    assert f.kv["general.architecture"] == "lrnn" and "heads of 4" in bench.err and "blk.0.time_mix_v0.weight" not in f.data


def test_rwkv7_with_another_group_norm_is_ours(bench):
    _, t = tiny.rwkv7_official()
    config, fla = tiny.rwkv7_fla_of(t)
    f = bench.convert(config | {"norm_eps": 1e-5, "fuse_norm": True}, fla)
    assert f.kv["general.architecture"] == "lrnn" and np.isclose(f.kv["lrnn.output_norm_epsilon"], 4e-5)
    assert np.isclose(f.kv["lrnn.key_norm_epsilon"], 1e-6) and "blk.0.time_mix_v0.weight" not in f.data


def test_rwkv7_that_fla_cannot_build_is_refused(bench):
    config, t = tiny.rwkv7_fla_of(tiny.rwkv7_official()[1])
    assert "attn" in bench.refuse(config | {"attn": {"layers": [1], "num_heads": 2}}, t)[1]
    assert "value_dim" in bench.refuse(config | {"value_dim": [D, 2 * D]}, t)[1]


def test_rosa_is_refused(bench):
    _, t = tiny.rwkv7_official()
    code, err = bench.refuse(None, t | {"blocks.0.rosa.emb": np.zeros(3, np.float32)})
    assert code == 4 and "rosa" in err


def test_xlstm_fused_is_the_same(bench):
    single = bench.convert(*tiny.xlstm())
    assert single.kv["lrnn.gate_soft_cap"] == 15.0 and single.kv["lrnn.logit_soft_cap"] == 30.0 and single.kv["lrnn.key_length"] == 3
    fused = bench.convert(*tiny.xlstm(fused=True))
    assert fused.data.keys() == single.data.keys() and all(same(fused.data[n], single.data[n]) for n in single.data)


def test_llama(bench):
    config, t = tiny.llama()
    f = bench.convert(config, t)
    assert f.kv["lrnn.family"] == "transformer" and f.kv["lrnn.attention.head_count_kv"] == 2 and f.kv["lrnn.rope_theta"] == 5000.0
    assert f.kv["lrnn.context_length_trained"] == 512 and f.kv["lrnn.attention.qk_norm"] == "none"


def test_llama_refusals(bench):
    config, t = tiny.llama()
    llama3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 64}
    for change, named in (({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_type"),
                          ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
                          ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
                          ({"rope_scaling": llama3}, "low_freq_factor"),
                          ({"rope_scaling": llama3 | {"high_freq_factor": None}}, "high_freq_factor"),
                          ({"rope_scaling": {"rope_type": "default", "factor": 4}}, "factor"),
                          ({"use_sliding_window": True}, "use_sliding_window"),
                          ({"layer_types": ["sliding_attention"] * L}, "layer_types")):
        code, err = bench.refuse(config | change, t)
        assert code == 4 and named in err


def test_scaled_rope(bench):
    config, t = tiny.llama(hd=4)                           # theta 5000: wavelengths 2π and 2π √5000 = 444
    assert "rope_freqs.weight" not in bench.convert(config, t).data
    del config["rope_theta"]
    linear = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
    f = bench.convert(config | {"rope_parameters": linear}, t)
    assert f.data["rope_freqs.weight"].tolist() == [4.0, 4.0] and f.kv["lrnn.rope_theta"] == 5000.0
    # transformers 4 has the same options under another name, beside rope_theta
    f = bench.convert(config | {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}, t)
    assert f.data["rope_freqs.weight"].tolist() == [4.0, 4.0]
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5000.0}
    f = bench.convert(config | {"rope_parameters": llama3 | {"original_max_position_embeddings": 100}}, t)
    assert f.data["rope_freqs.weight"].tolist() == [1.0, 8.0]      # shorter than 100/4, longer than 100/1
    # between the two: 888.58 / 444.29 = 2, a third of the way from 1 to 4, and so is the frequency between 1/8 and 1
    f = bench.convert(config | {"rope_parameters": llama3 | {"original_max_position_embeddings": 4 * np.pi * np.sqrt(5000)}}, t)
    assert np.allclose(f.data["rope_freqs.weight"], [1.0, 1 / (1 / 8 + 7 / 8 / 3)])


def test_biases_of_attention_and_mlp(bench):
    config, t = tiny.llama()
    p = "model.layers.1."
    width = {n: t[f"{p}{n}.weight"].shape[0] for n in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
    t |= tiny.randoms({f"{p}{n}.bias": (w,) for n, w in width.items()})
    f = bench.convert(config | {"attention_bias": True, "mlp_bias": True}, t)
    for name, source in (("attn_output", "self_attn.o_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
                         ("ffn_down", "mlp.down_proj")):
        assert same(f.data[f"blk.1.{name}.bias"], t[f"{p}{source}.bias"])


def test_windows(bench):
    config, t = tiny.llama()
    assert bench.convert(config | {"model_type": "mistral", "sliding_window": 64}, t).kv["lrnn.attention.window"] == 64
    unused = bench.convert(config | {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, t)
    assert "lrnn.attention.window" not in unused.kv


def test_olmo_hybrid(bench):
    config, t = tiny.olmo_hybrid()
    f = bench.convert(config, t)
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]" and "default is true" in f.kv["lrnn.eigenvalues_source"]
    assert f.kv["lrnn.layer_kinds"] == ["recurrent", "attention"] and f.kv["lrnn.block_style"] == "olmo_hybrid"
    assert f.kv["lrnn.attention.qk_norm"] == "all" and "lrnn.rope_theta" not in f.kv
    assert np.isclose(f.kv["lrnn.output_norm_epsilon"], 1e-5) and "blk.1.attn_norm.weight" not in f.data
    assert same(f.data["blk.1.attn_post_norm.weight"], t["model.layers.1.post_attention_layernorm.weight"])


def test_olmo_hybrid_as_transformers_saves_it(bench):
    config, t = tiny.olmo_hybrid()
    released = bench.convert(config, t)
    a = "model.layers.0.linear_attn."
    joined = np.concatenate([t.pop(f"{a}{c}_conv1d.weight") for c in "qkv"])
    t |= {f"{a}{c}_conv1d.weight": x for c, x in zip("qkv", np.split(joined, 3))}
    t["model.layers.1.feedforward_layer_norm.weight"] = t.pop("model.layers.1.post_attention_layernorm.weight")
    mangled = bench.convert(config, t)
    assert mangled.data.keys() == released.data.keys() and all(same(mangled.data[n], released.data[n]) for n in released.data)


# -- the shell

def test_old_fused_mlp_has_the_gate_first(bench):
    config, t = tiny.delta_net()
    new = bench.convert(config, t)
    for i in range(L):
        p = f"model.layers.{i}.mlp."
        t[p + "gate_proj.weight"] = np.concatenate([t[p + "gate_proj.weight"], t.pop(p + "up_proj.weight")])
    old = bench.convert(config, t)
    assert old.data.keys() == new.data.keys() and all(same(old.data[n], new.data[n]) for n in new.data)


def test_norms_inside_the_mixer(bench):
    config, t = tiny.delta_net()
    new = bench.convert(config, t)
    moved = {n.replace(".attn_norm.", ".attn.norm.").replace(".mlp_norm.", ".mlp.norm."): x for n, x in t.items()}
    old = bench.convert(config | {"norm_first": True}, moved)
    assert all(same(old.data[n], new.data[n]) for n in new.data)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_prefixes_are_stripped(bench, prefix):
    config, t = tiny.delta_net()
    assert "blk.1.attn_q.weight" in bench.convert(config, {prefix + n: x for n, x in t.items()}).data


def test_tied_embeddings(bench):
    config, t = tiny.delta_net()
    copy = dict(t) | {"lm_head.weight": t["model.embeddings.weight"]}
    assert "output.weight" not in bench.convert(config | {"tie_word_embeddings": True}, copy).data
    del t["lm_head.weight"]
    assert "output.weight" not in bench.convert(config | {"tie_word_embeddings": True}, t).data
    bench.out.unlink()
    code, err = bench.refuse(config, t)
    assert code == 4 and "lm_head.weight" in err


def test_hybrid_attention(bench):
    config, t = tiny.gated_delta_net()
    a = "model.layers.1.attn."
    t = {n: x for n, x in t.items() if not n.startswith(a)}
    t |= tiny.randoms({a + "q_proj.weight": (D, D), a + "q_proj.bias": (D,), a + "k_proj.weight": (4, D), a + "v_proj.weight": (4, D),
                       a + "o_proj.weight": (D, D)})
    f = bench.convert(config | {"attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 16, "qkv_bias": True}}, t)
    assert f.kv["lrnn.layer_kinds"] == ["recurrent", "attention"] and f.kv["lrnn.attention.window"] == 16
    assert f.kv["lrnn.attention.key_length"] == 2 and f.kv["lrnn.rope_theta"] == 10000.0 and f.ne["blk.1.attn_q.bias"] == [D]
    assert "blk.1.ssm_beta.weight" not in f.data


def test_powlu_and_residual_attention_are_refused(bench):
    config, t = tiny.delta_net()
    assert "powlu" in bench.refuse(config | {"hidden_act": "powlu"}, t)[1]
    assert "attnres_block_size" in bench.refuse(config | {"attnres_block_size": 4}, t)[1]

"""Names, shapes and values of each family. The expected values do not come from the converter."""

import re

import numpy as np
import pytest
import tiny
from tiny import D, I, L, V

from lrnn_convert.errors import ConvertError
from lrnn_convert.families import rwkv7
from lrnn_convert.readers.config import read_yaml


def same(a, b):
    return np.array_equal(a, b)


def same_tensors(a, b):
    """Whether two files have the same tensors."""
    return a.data.keys() == b.data.keys() and all(same(a.data[n], b.data[n]) for n in a.data)


def values(f, prefix, *keys):
    return [f.kv[prefix + key] for key in keys]


@pytest.mark.parametrize("family", tiny.families())
def test_family_is_written(bench, family):
    f = bench.convert(*tiny.make(family))
    assert f.kv["lrnn.family"] == family and f.kv["lrnn.format_version"] == 1


def test_delta_net(bench):
    config, t = tiny.delta_net()
    options = {"allow_neg_eigval": True, "qk_norm": "sum", "qk_activation": "elu"}
    f = bench.convert(config | options, t)
    assert f.kv["general.architecture"] == "lrnn"
    assert values(f, "lrnn.", "embedding_length", "block_count", "vocab_size",
                  "feed_forward_length") == [D, L, V, I]
    assert values(f, "lrnn.", "head_count", "key_length", "value_length",
                  "conv_width") == [2, 3, 5, 4]
    assert values(f, "lrnn.", "beta", "qk_norm", "qk_activation",
                  "output_gate") == [True, "sum", "elu", "none"]
    assert f.ne["token_embd.weight"] == [D, V] and f.ne["blk.0.ffn_down.weight"] == [I, D]
    assert f.ne["blk.1.attn_v.weight"] == [D, 10] and f.ne["blk.0.ssm_conv1d_v.weight"] == [4, 10]
    p = "model.layers.1."
    assert same(f.data["blk.1.attn_k.weight"], t[p + "attn.k_proj.weight"])
    assert same(f.data["blk.1.ssm_conv1d_q.weight"], t[p + "attn.q_conv1d.weight"][:, 0])
    assert same(f.data["blk.1.ffn_norm.weight"], t[p + "mlp_norm.weight"])
    assert len(f.data) == len(t)


def test_gated_delta_net_keeps_the_order_of_value_heads(bench):
    config, t = tiny.gated_delta_net()
    f = bench.convert(config | {"output_gate_activation": "sigmoid"}, t)
    assert values(f, "lrnn.", "head_count", "head_count_value", "output_gate") == [2, 4, "sigmoid"]
    assert same(f.data["blk.0.attn_v.weight"], t["model.layers.0.attn.v_proj.weight"])
    a = t["model.layers.0.attn.A_log"]
    assert np.allclose(f.data["blk.0.ssm_a"], -np.exp(a), rtol=1e-6)
    assert same(f.data["blk.0.ssm_dt.bias"], t["model.layers.0.attn.dt_bias"])


def test_gated_delta_net_ignores_the_unused_d(bench):
    config, t = tiny.gated_delta_net()
    t |= {f"model.layers.{i}.attn.D": np.ones(4, np.float32) for i in range(L)}
    assert "blk.0.ssm_d" not in bench.convert(config, t).data


@pytest.mark.parametrize("layout", "AB")
def test_delta_product_layouts_give_the_same_model(bench, layout):
    new = bench.convert(*tiny.gated_delta_product("C"))
    assert values(new, "lrnn.", "householder_count", "gate",
                  "eigenvalues") == [3, "head", "[-1,1]"]
    old = bench.convert(*tiny.gated_delta_product(layout))
    assert same_tensors(old, new)
    del old.kv["lrnn.source_config"], new.kv["lrnn.source_config"]
    assert old.kv == new.kv


def split_megatron(t, n=3):
    """The tensors of a mixer as distributed checkpoints have them: one for each part and factor."""
    E, GN, HV = 20, 6, 4
    parts = [("z", E), *((f"V{j}", E) for j in range(n)), *((f"K{j}", GN) for j in range(n)),
             ("Q", GN), *((f"b{j}", HV) for j in range(n)), ("a", HV)]
    out = {}
    for name, x in t.items():
        conv = name.endswith("conv1d.weight")
        if conv or name.endswith("in_proj.weight"):
            at = 0
            for part, size in parts:
                if not conv or part[0] in "VKQ":
                    out[f"{name}.{part}"] = x[at : at + size]
                    at += size
            assert at == len(x)
        else:
            out[name] = x
    return out


def test_megatron_gdp(bench):
    config, t = tiny.megatron_gdp()
    f = bench.convert(config, t)
    assert values(f, "lrnn.", "family", "head_count", "head_count_value", "householder_count",
                  "output_norm", "block_style", "layer_kinds", "eigenvalues") == [
        "gated_delta_product", 2, 4, 3, "gated_group", "single", ["recurrent", "mlp", "attention"],
        "[0,1]"]
    assert f.ne["blk.0.ssm_norm.weight"] == [10, 2] and f.ne["blk.0.attn_k.weight"] == [D, 18]
    qkv = t["decoder.layers.2.self_attention.linear_qkv.weight"].reshape(2, 4, 3, D)
    assert same(f.data["blk.2.attn_q.weight"], qkv[:, :2].reshape(12, D))
    assert same(f.data["blk.2.attn_v.weight"], qkv[:, 3].reshape(6, D))
    assert same_tensors(bench.convert(config, split_megatron(t)), f)
    assert bench.convert(config | {"allow_neg_eigval": True}, t).kv["lrnn.eigenvalues"] == "[-1,1]"


@pytest.mark.parametrize("change", [{"hybrid_layer_pattern": "MEM"},
                                    {"hybrid_layer_pattern": "M-"}, {"mamba_num_groups": 3},
                                    {"gdp_num_householder": 2}, {"num_query_groups": 3},
                                    {"squared_relu": False}])
def test_megatron_gdp_refuses(bench, change):
    config, t = tiny.megatron_gdp()
    code, err = bench.refuse(config | change, t)
    assert code == 4 and err.count("\n") <= 1, err


def test_kda(bench):
    config, t = tiny.kda()
    f = bench.convert(config | {"lower_bound": -5.0}, t)
    assert f.kv["lrnn.gate_lower_bound"] == -5.0
    assert f.ne["blk.0.ssm_a"] == [2] and f.ne["blk.0.ssm_dt.bias"] == [6]
    p = "model.layers.0.attn."
    assert same(f.data["blk.0.ssm_f_b.weight"], t[p + "f_proj.1.weight"])
    assert same(f.data["blk.0.ssm_g_b.bias"], t[p + "g_proj.1.bias"])


def test_gated_delta_net_2(bench):
    config, t = tiny.gated_delta_net_2()
    f = bench.convert(config | {"allow_neg_eigval": True}, t)
    assert values(f, "lrnn.", "family", "head_count", "head_count_value",
                  "eigenvalues") == ["gated_delta_net_2", 2, 4, "[-1,1]"]
    p = "model.layers.0.attn."
    assert same(f.data["blk.0.ssm_erase.weight"], t[p + "b_proj.weight"])
    assert same(f.data["blk.0.ssm_write.weight"], t[p + "w_proj.weight"])


@pytest.mark.parametrize("norm", ["g_norm.weight", "g_norm_swish_gate.weight"])
def test_gla(bench, norm):
    config, t = tiny.gla(norm=norm)
    f = bench.convert(config | {"clamp_min": -3.0}, t)
    assert values(f, "lrnn.", "head_count", "head_count_kv") == [4, 2]
    assert values(f, "lrnn.", "gate_normalizer", "gate_clamp_min",
                  "output_gate") == [16.0, -3.0, "silu"]
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
    assert np.isclose(f.kv["lrnn.output_norm_epsilon"], 1e-5)          # norm_eps has no effect


def test_mamba_is_a_file_of_llama_cpp(bench):
    config, t = tiny.mamba()
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "mamba"
    assert values(f, "mamba.", "context_length", "attention.head_count") == [1048576, 0]
    assert values(f, "mamba.ssm.", "inner_size", "state_size", "time_step_rank",
                  "conv_kernel") == [16, 3, 2, 4]
    assert f.ne["blk.0.ssm_a"] == [3, 16] and f.ne["blk.0.ssm_in.weight"] == [D, 32]
    assert f.ne["blk.0.ssm_conv1d.weight"] == [4, 16]
    assert same(f.data["blk.0.ssm_in.weight"], t["backbone.layers.0.mixer.in_proj.weight"])
    a = t["backbone.layers.1.mixer.A_log"]
    assert np.allclose(f.data["blk.1.ssm_a"], -np.exp(a), rtol=1e-6)


def test_mamba_of_state_spaces(bench):
    _, t = tiny.mamba(embedding="backbone.embedding.weight")
    del t["lm_head.weight"]
    config = {"d_model": D, "n_layer": L, "vocab_size": V, "ssm_cfg": {}, "rms_norm": True,
              "pad_vocab_size_multiple": 8}
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "mamba" and "output.weight" not in f.data


def test_mamba2_of_state_spaces(bench):
    _, t = tiny.mamba2()
    config = {"d_model": D, "n_layer": L, "ssm_cfg": {"layer": "Mamba2", "ngroups": 2},
              "tie_embeddings": False}
    assert bench.convert(config, t).kv["general.architecture"] == "mamba2"
    bench.out.unlink()
    config["ssm_cfg"] = {"layer": "Mamba3"}
    assert "Mamba3" in bench.refuse(config, t)[1]


def test_mamba_with_another_expansion_is_an_lrnn_file(bench):
    f = bench.convert(*tiny.mamba(E=3 * D))
    assert f.kv["general.architecture"] == "lrnn"
    assert values(f, "lrnn.", "state_length", "final_norm") == [3, True]


def test_mamba_without_conv_bias_has_zeros(bench):
    config, t = tiny.mamba()
    t = {n: x for n, x in t.items() if not n.endswith("conv1d.bias")}
    assert not bench.convert(config, t).data["blk.0.ssm_conv1d.bias"].any()


def test_mamba_with_biases_is_an_lrnn_file(bench):
    config, t = tiny.mamba()
    biases = tiny.biases_of(t, [n for n in t if n.endswith(("in_proj.weight", "out_proj.weight"))])
    f = bench.convert(config | {"use_bias": True}, t | biases)
    assert f.kv["general.architecture"] == "lrnn" and "biases" in bench.err
    for name in ("in", "out"):
        source = f"backbone.layers.1.mixer.{name}_proj.bias"
        assert same(f.data[f"blk.1.ssm_{name}.bias"], biases[source])


@pytest.mark.parametrize("make", [tiny.mamba, tiny.mamba2])
def test_mamba_with_layer_norm_is_an_lrnn_file(bench, make):
    config, t = make()
    norms = [n for n in t if re.search(r"(norm_f|layers\.\d+\.norm)\.weight", n)]
    biased = t | tiny.biases_of(t, norms)
    f = bench.convert(config | {"rms_norm": False}, biased)
    assert f.kv["general.architecture"] == "lrnn"
    assert same(f.data["blk.1.attn_norm.bias"], biased["backbone.layers.1.norm.bias"])
    assert same(f.data["output_norm.bias"], biased["backbone.norm_f.bias"])
    bench.out.unlink()
    # a bias marks a LayerNorm
    assert "rms_norm" in bench.refuse(config | {"rms_norm": False}, t)[1]
    assert "rms_norm" in bench.refuse(config | {"rms_norm": True}, biased)[1]


def test_falcon_mamba(bench):
    config, t = tiny.mamba()
    config |= {"model_type": "falcon_mamba", "layer_norm_epsilon": 1e-5}
    f = bench.convert(config, t)                           # these norms have another default eps
    assert f.kv["general.architecture"] == "lrnn" and f.kv["lrnn.family"] == "mamba"
    assert np.isclose(f.kv["lrnn.dt_b_c_norm_epsilon"], 1e-6)
    f = bench.convert(config | {"mixer_rms_eps": 1e-5}, t)  # llama.cpp has one eps for all
    assert f.kv["general.architecture"] == "mamba" and f.kv["mamba.ssm.dt_b_c_rms"] is True


def test_mamba_toy_without_a_final_norm(bench):
    _, t = tiny.mamba(W=1)
    t = {n.replace("backbone.embeddings", "token_embedding").replace("backbone.", ""): x
         for n, x in t.items() if "norm_f" not in n}
    f = bench.convert(None, t, "--eigenvalues", "signed")
    assert values(f, "lrnn.", "final_norm", "eigenvalues") == [False, "[-1,1]"]
    assert "output_norm.weight" not in f.data
    # a convolution of width 1 gets an older tap of zero
    assert f.kv["lrnn.conv_width"] == 2
    taps = f.data["blk.0.ssm_conv1d.weight"]
    assert same(taps[:, 1], t["layers.0.mixer.conv1d.weight"][:, 0, 0]) and not taps[:, 0].any()


def test_mamba2(bench):
    config, t = tiny.mamba2()
    # json writes a bare Infinity
    f = bench.convert(config | {"time_step_limit": [0.0, float("inf")]}, t)
    assert f.kv["general.architecture"] == "mamba2"
    assert values(f, "mamba2.ssm.", "time_step_rank", "group_count") == [4, 2]
    assert f.ne["blk.0.ssm_a"] == [1, 4] and f.ne["blk.0.ssm_d"] == [1, 4]
    assert f.ne["blk.0.ssm_norm.weight"] == [8, 2]


def test_mamba2_with_a_limit_is_an_lrnn_file(bench):
    config, t = tiny.mamba2()
    f = bench.convert(config | {"time_step_limit": [0.001, {"__float__": "Infinity"}]}, t)
    assert f.kv["general.architecture"] == "lrnn"
    assert np.isclose(f.kv["lrnn.dt_min"], 0.001) and "lrnn.dt_max" not in f.kv
    assert values(f, "lrnn.", "head_count", "state_length", "group_count",
                  "value_length") == [4, 3, 2, 4]


def test_official_rwkv6_is_a_file_of_llama_cpp(bench):
    _, t = tiny.rwkv6()
    f = bench.convert(None, t)
    assert f.kv["general.architecture"] == "rwkv6"
    assert values(f, "rwkv6.", "wkv.head_size", "time_mix_extra_dim") == [4, 3]
    assert f.ne["blk.0.time_mix_w1.weight"] == [D, 15]
    assert f.ne["blk.0.time_mix_w2.weight"] == [3, D, 5]
    assert f.ne["blk.0.time_mix_lerp_fused.weight"] == [D, 1, 1, 5]
    # h + dx (maa + tanh(h @ w1) @ w2), computed from the checkpoint and from the file
    h = np.random.default_rng(1).standard_normal(D)
    p = "blocks.0.att.time_maa_"
    from_checkpoint = np.tanh(h @ t[p + "w1"]).reshape(5, 3)
    from_file = np.tanh(f.data["blk.0.time_mix_w1.weight"] @ h).reshape(5, 3)
    lerps, w2 = f.data["blk.0.time_mix_lerp_fused.weight"], f.data["blk.0.time_mix_w2.weight"]
    for i, c in enumerate("wkvrg"):
        want = t[p + c].reshape(-1) + from_checkpoint[i] @ t[p + "w2"][i]
        assert np.allclose(want, lerps[i].reshape(-1) + w2[i] @ from_file[i], atol=1e-5)


def test_rwkv6_of_fla_differs_only_in_eps(bench):
    _, t = tiny.rwkv6()
    official = bench.convert(None, t)
    fla = bench.convert(*tiny.rwkv6_fla_of(t))
    assert fla.kv["general.architecture"] == "lrnn"
    assert np.isclose(fla.kv["lrnn.output_norm_epsilon"], 1e-5)
    assert same_tensors(fla, official)


@pytest.mark.parametrize("fused_lerps", [False, True])
def test_rwkv7_of_fla_equals_the_official_one(bench, monkeypatch, fused_lerps):
    monkeypatch.setattr(rwkv7, "LLAMA_CPP_HEAD", 4)        # or the heads would need length 64
    _, t = tiny.rwkv7()
    official = bench.convert(None, t)
    assert official.kv["general.architecture"] == "rwkv7"
    assert official.kv["lrnn.eigenvalues"] == "family"
    assert official.ne["blk.1.time_mix_w1.weight"] == [D, 3]
    assert official.ne["blk.1.time_mix_v2.weight"] == [2, D]
    # llama.cpp reads v1 of layer 0 and does not use it
    v1, a1 = (official.data[f"blk.0.time_mix_{c}1.weight"] for c in "va")
    assert same(v1, a1)
    assert same(official.data["blk.0.time_mix_w2.weight"], t["blocks.0.att.w2"].T)
    fla = bench.convert(*tiny.rwkv7_fla_of(t, fused_lerps))
    assert fla.kv["general.architecture"] == "rwkv7"       # head_dim · norm_eps is 64e-5
    assert same_tensors(fla, official)


def test_rwkv7_with_short_heads_is_an_lrnn_file(bench):
    f = bench.convert(*tiny.rwkv7())
    assert f.kv["general.architecture"] == "lrnn" and "heads of 4" in bench.err
    assert "blk.0.time_mix_v0.weight" not in f.data


def test_rwkv7_with_another_group_norm_is_an_lrnn_file(bench):
    config, t = tiny.rwkv7_fla_of(tiny.rwkv7()[1])
    f = bench.convert(config | {"norm_eps": 1e-5, "fuse_norm": True}, t)
    assert f.kv["general.architecture"] == "lrnn"
    assert np.allclose(values(f, "lrnn.", "output_norm_epsilon", "key_norm_epsilon"), [4e-5, 1e-6])
    assert "blk.0.time_mix_v0.weight" not in f.data


def test_fused_mlstm_is_the_same(bench):
    single = bench.convert(*tiny.mlstm())
    assert values(single, "lrnn.", "gate_soft_cap", "logit_soft_cap",
                  "key_length") == [15.0, 30.0, 3]
    assert same_tensors(bench.convert(*tiny.mlstm(fused=True)), single)


def test_llama(bench):
    f = bench.convert(*tiny.transformer())
    assert values(f, "lrnn.", "attention.head_count_kv", "attention.qk_norm", "rope_theta",
                  "context_length_trained") == [2, "none", 5000.0, 512]


def test_scaled_rope(bench):
    config, t = tiny.transformer(hd=4)     # theta 5000: wavelengths 2π and 2π √5000 = 444
    assert "rope_freqs.weight" not in bench.convert(config, t).data
    del config["rope_theta"]

    def factors(**params):
        f = bench.convert(config | {"rope_parameters": params | {"rope_theta": 5000.0}}, t)
        assert f.kv["lrnn.rope_theta"] == 5000.0
        return f.data["rope_freqs.weight"].tolist()

    assert factors(rope_type="linear", factor=4.0) == [4.0, 4.0]
    # transformers 4 has the same options under another name, next to rope_theta
    old = {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    assert bench.convert(config | old, t).data["rope_freqs.weight"].tolist() == [4.0, 4.0]
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    # shorter than 100/4, longer than 100/1
    assert factors(**llama3, original_max_position_embeddings=100) == [1.0, 8.0]
    # in between: 888.58 / 444.29 = 2 is a third of the way from 1 to 4, and so is the frequency
    # between 1/8 and 1
    found = factors(**llama3, original_max_position_embeddings=4 * np.pi * np.sqrt(5000))
    assert np.allclose(found, [1.0, 1 / (1 / 8 + 7 / 8 / 3)])


def test_biases_of_attention_and_mlp(bench):
    config, t = tiny.transformer()
    p = "model.layers.1."
    names = {"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    t |= tiny.biases_of(t, [f"{p}{source}.weight" for source in names.values()])
    f = bench.convert(config | {"attention_bias": True, "mlp_bias": True}, t)
    for name, source in names.items():
        assert same(f.data[f"blk.1.{name}.bias"], t[f"{p}{source}.bias"])


def test_windows(bench):
    config, t = tiny.transformer()
    config["sliding_window"] = 64
    f = bench.convert(config | {"model_type": "mistral"}, t)
    assert f.kv["lrnn.attention.window"] == 64
    f = bench.convert(config | {"model_type": "qwen2", "use_sliding_window": False}, t)
    assert "lrnn.attention.window" not in f.kv


def test_olmo_hybrid(bench):
    config, t = tiny.olmo_hybrid()
    f = bench.convert(config, t)
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]"
    assert "default is true" in f.kv["lrnn.eigenvalues_source"]
    assert f.kv["lrnn.layer_kinds"] == ["recurrent", "attention"]
    assert values(f, "lrnn.", "block_style", "attention.qk_norm") == ["olmo_hybrid", "all"]
    assert "lrnn.rope_theta" not in f.kv and np.isclose(f.kv["lrnn.output_norm_epsilon"], 1e-5)
    assert "blk.1.attn_norm.weight" not in f.data
    post = t["model.layers.1.post_attention_layernorm.weight"]
    assert same(f.data["blk.1.attn_post_norm.weight"], post)


def test_olmo_hybrid_as_transformers_saves_it(bench):
    config, t = tiny.olmo_hybrid()
    released = bench.convert(config, t)
    a, p = "model.layers.0.linear_attn.", "model.layers.1."
    joined = np.concatenate([t.pop(f"{a}{c}_conv1d.weight") for c in "qkv"])
    t |= {f"{a}{c}_conv1d.weight": x for c, x in zip("qkv", np.split(joined, 3))}
    t[p + "feedforward_layer_norm.weight"] = t.pop(p + "post_attention_layernorm.weight")
    assert same_tensors(bench.convert(config, t), released)


# -- fla's language model

def test_older_fused_mlp_has_the_gate_first(bench):
    config, t = tiny.delta_net()
    new = bench.convert(config, t)
    for i in range(L):
        p = f"model.layers.{i}.mlp."
        gate, up = t[p + "gate_proj.weight"], t.pop(p + "up_proj.weight")
        t[p + "gate_proj.weight"] = np.concatenate([gate, up])
    assert same_tensors(bench.convert(config, t), new)


def test_norms_inside_the_mixer(bench):
    config, t = tiny.delta_net()
    new = bench.convert(config, t)
    moved = {n.replace(".attn_norm.", ".attn.norm.").replace(".mlp_norm.", ".mlp.norm."): x
             for n, x in t.items()}
    assert same_tensors(bench.convert(config | {"norm_first": True}, moved), new)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_prefixes_are_stripped(bench, prefix):
    config, t = tiny.delta_net()
    f = bench.convert(config, {prefix + n: x for n, x in t.items()})
    assert "blk.1.attn_q.weight" in f.data


def test_tied_embeddings(bench):
    config, t = tiny.delta_net()
    tied = config | {"tie_word_embeddings": True}
    copy = dict(t) | {"lm_head.weight": t["model.embeddings.weight"]}
    assert "output.weight" not in bench.convert(tied, copy).data
    del t["lm_head.weight"]
    assert "output.weight" not in bench.convert(tied, t).data
    bench.out.unlink()
    code, err = bench.refuse(config, t)
    assert code == 4 and "lm_head.weight" in err


def test_hybrid_attention(bench):
    config, t = tiny.hybrid(tiny.gated_delta_net, window_size=16, qkv_bias=True)
    f = bench.convert(config, t | tiny.biases_of(t, ["model.layers.1.attn.q_proj.weight"]))
    assert f.kv["lrnn.layer_kinds"] == ["recurrent", "attention"]
    assert values(f, "lrnn.attention.", "window", "key_length", "head_count_kv") == [16, 2, 2]
    assert f.kv["lrnn.rope_theta"] == 10000.0 and f.ne["blk.1.attn_q.bias"] == [D]
    assert "blk.1.ssm_beta.weight" not in f.data


# ---- Qwen3.5


def test_qwen35_value_heads_are_tiled(bench):
    """As llama.cpp's converter orders them: all first heads of the key heads, then all second."""
    config, t = tiny.qwen35(H=2, HV=4, K=3)
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "qwen35"
    a = "model.layers.0.linear_attn."
    order = [0, 2, 1, 3]
    rows = [3 * h + i for h in order for i in range(3)]
    assert same(f.data["blk.0.ssm_dt.bias"], t[a + "dt_bias"][order])
    assert np.allclose(f.data["blk.0.ssm_a"], -np.exp(t[a + "A_log"][order]))
    assert same(f.data["blk.0.ssm_beta.weight"], t[a + "in_proj_b.weight"][order])
    assert same(f.data["blk.0.attn_gate.weight"], t[a + "in_proj_z.weight"][rows])
    assert same(f.data["blk.0.ssm_out.weight"], t[a + "out_proj.weight"][:, rows])
    qkv = [*range(12), *(12 + r for r in rows)]
    assert same(f.data["blk.0.attn_qkv.weight"], t[a + "in_proj_qkv.weight"][qkv])
    assert same(f.data["blk.0.ssm_conv1d.weight"], t[a + "conv1d.weight"][qkv, 0])


def test_qwen35_norms_add_one(bench):
    config, t = tiny.qwen35()
    f = bench.convert(config, t)
    for name, source in (("output_norm", "model.norm"),
                         ("blk.0.attn_norm", "model.layers.0.input_layernorm"),
                         ("blk.1.post_attention_norm", "model.layers.1.post_attention_layernorm"),
                         ("blk.1.attn_q_norm", "model.layers.1.self_attn.q_norm")):
        assert np.allclose(f.data[name + ".weight"], 1 + t[source + ".weight"]), name
    norm = t["model.layers.0.linear_attn.norm.weight"]
    assert same(f.data["blk.0.ssm_norm.weight"], norm)


def test_qwen35_multimodal(bench):
    """Only the text part is converted, and the rest is reported."""
    config, t = tiny.qwen35()
    plain = bench.convert(config, t)
    nested = {n.replace("model.", "model.language_model.", 1): x for n, x in t.items()}
    nested |= tiny.randoms({"model.visual.patch_embed.weight": (3, 5)})
    outer = {"model_type": "qwen3_5", "text_config": config, "vision_config": {"depth": 1},
             "tie_word_embeddings": False}
    f = bench.convert(outer, nested)
    assert same_tensors(f, plain)
    assert "1 tensors of the vision part are skipped" in bench.err
    bench.out.unlink()
    vision = {n: x for n, x in nested.items() if "visual" in n}
    code, err = bench.refuse(outer, vision)
    assert code == 4 and "not only its vision part" in err


@pytest.mark.parametrize("make", [tiny.qwen35, tiny.qwen35moe, tiny.qwen3next])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_qwen_draft_block(bench, make, prefix):
    """The layer after the last one, with llama.cpp's names."""
    config, t = make()
    plain = bench.convert(config, t)
    block = tiny.draft_block(t)
    f = bench.convert(config, t | {prefix + n: x for n, x in block.items()})
    arch = f.kv["general.architecture"] + "."
    assert values(plain, arch, "block_count", "attention.recurrent_layers") == [2, [True, False]]
    assert arch + "nextn_predict_layers" not in plain.kv
    assert values(f, arch, "block_count", "nextn_predict_layers", "attention.recurrent_layers") == [
        3, 1, [True, False, False]]
    added = {n.removeprefix("blk.2.") for n in set(f.data) - set(plain.data)}
    assert added == {n.removeprefix("blk.1.") for n in plain.data if n.startswith("blk.1.")} | {
        f"nextn.{n}.weight" for n in ("eh_proj", "enorm", "hnorm", "shared_head_norm")}
    assert same(f.data["blk.2.nextn.eh_proj.weight"], block["mtp.fc.weight"])
    for name, source in (("nextn.enorm", "pre_fc_norm_embedding"), ("attn_norm",
                         "layers.0.input_layernorm"), ("nextn.shared_head_norm", "norm")):
        assert same(f.data[f"blk.2.{name}.weight"], block[f"mtp.{source}.weight"] + np.float32(1))
    for name in ("mtp.norm.weight", "mtp.layers.0.self_attn.k_proj.weight"):
        bench.out.unlink(missing_ok=True)
        code, err = bench.refuse(config, t | {n: x for n, x in block.items() if n != name})
        assert code == 4 and name in err


# ---- Hybrids of Mamba-2


def test_granite(bench):
    config, t = tiny.granitehybrid()
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "granitehybrid"
    assert f.kv["granitehybrid.attention.head_count_kv"] == [0, 1]
    assert np.allclose(values(f, "granitehybrid.", "embedding_scale", "residual_scale",
                              "attention.scale", "logit_scale"), [6, 0.4, 0.1, 4])
    both = t["model.layers.0.shared_mlp.input_linear.weight"]
    assert same(f.data["blk.0.ffn_gate.weight"], both[:12])
    assert same(f.data["blk.0.ffn_up.weight"], both[12:])


@pytest.mark.parametrize("make, n_rot", [(tiny.bamba, 2), (tiny.granitehybrid, 4)])
def test_rope_of_neighbors(bench, make, n_rot):
    """The first n_rot rows of each head of q and k: halves become pairs."""
    config, t = make()
    f = bench.convert(config | {"position_embedding_type": "rope", "rope_theta": 500.0}
                      if make is tiny.granitehybrid else config, t)
    assert values(f, "granitehybrid.rope.", "scaling.finetuned", "dimension_count",
                  "freq_base") == [True, n_rot, 500.0]
    src = "model.layers.1.self_attn."
    order = [0, 1, 2, 3] if n_rot == 2 else [0, 2, 1, 3]
    for name, heads in (("q", 2), ("k", 1)):
        rows = t[f"{src}{name}_proj.weight"].reshape(heads, 4, D)
        assert same(f.data[f"blk.1.attn_{name}.weight"], rows[:, order].reshape(-1, D))
    assert same(f.data["blk.1.attn_v.weight"], t[src + "v_proj.weight"])


def test_bamba_with_longer_heads_and_named_layers(bench):
    config, t = tiny.bamba(heads=2, hd=8)
    f = bench.convert(config, t)
    rows = t["model.layers.1.self_attn.k_proj.weight"]
    assert same(f.data["blk.1.attn_k.weight"], rows[[0, 2, 1, 3, 4, 5, 6, 7]])
    assert "granitehybrid.embedding_scale" not in f.kv
    del config["attn_layer_indices"]
    bench.out.unlink()
    assert same_tensors(f, bench.convert(config | {"layers_block_type": ["mamba", "attention"]}, t))


def test_nemotron_pattern(bench):
    """The letters of the hub and the list of transformers say the same."""
    config, t = tiny.nemotron_h()
    f = bench.convert(config, t)
    assert values(f, "nemotron_h.", "attention.head_count_kv", "feed_forward_length") == [
        [0, 0, 1], [0, 12, 0]]
    del config["layers_block_type"]
    assert bench.convert(config | {"hybrid_override_pattern": "M-*"}, t).kv[
        "nemotron_h.feed_forward_length"] == [0, 12, 0]
    bench.convert(config | {"hybrid_override_pattern": "M-*"},
                  t | tiny.randoms({"mtp.layers.0.norm.weight": (8,)}))
    assert "1 tensors for the prediction of several tokens are skipped" in bench.err
    bench.out.unlink()
    for pattern, named in (("M-x", "the letters M * - E"), ("M-**", "4 letters"),
                           ("M-", "2 letters; expected 3"), ("M--", "no layer is attention")):
        code, err = bench.refuse(config | {"hybrid_override_pattern": pattern}, t)
        assert code == 4 and named in err, pattern


def test_falcon_multipliers_become_weights(bench):
    config, t = tiny.falcon_h1()
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "falcon-h1"
    a = "model.layers.1."
    for name, source, factor in (
            ("token_embd", "model.embed_tokens", 2), ("output", "lm_head", 4),
            ("blk.1.attn_q", a + "self_attn.q_proj", 3),
            ("blk.1.attn_k", a + "self_attn.k_proj", 21),
            ("blk.1.attn_v", a + "self_attn.v_proj", 3),
            ("blk.1.attn_output", a + "self_attn.o_proj", 5),
            ("blk.1.ssm_out", a + "mamba.out_proj", 0.25),
            ("blk.1.ffn_gate", a + "feed_forward.gate_proj", 9),
            ("blk.1.ffn_up", a + "feed_forward.up_proj", 1),
            ("blk.1.ffn_down", a + "feed_forward.down_proj", 11)):
        assert np.allclose(f.data[name + ".weight"], factor * t[source + ".weight"]), name
    # rows z, x [16], B, C [2 · 3], dt [4], and 0.5 of ssm_in_multiplier
    rows = np.repeat([1, 2, 4, 8, 16], [16, 16, 6, 6, 4])[:, None]
    assert np.allclose(f.data["blk.1.ssm_in.weight"], rows * t[a + "mamba.in_proj.weight"])


def test_falcon_tied(bench):
    """Two multipliers make two tensors of one, equal ones do not."""
    config, t = tiny.falcon_h1(norm=False)
    del t["lm_head.weight"]
    config |= {"tie_word_embeddings": True}
    f = bench.convert(config, t)
    assert np.allclose(2 * f.data["token_embd.weight"], f.data["output.weight"])
    assert "blk.0.ssm_norm.weight" not in f.data
    assert "output.weight" not in bench.convert(config | {"lm_head_multiplier": 2.0}, t).data


# ---- Mixtures of experts


def test_experts_are_stacked(bench):
    """One matrix per expert, or the tensors of all with gate and up fused, become the same."""
    config, t = tiny.qwen35moe()
    f = bench.convert(config, t)
    src = "model.layers.1.mlp.experts."
    for part in ("gate", "up", "down"):
        want = np.stack([t[f"{src}{e}.{part}_proj.weight"] for e in range(3)])
        assert same(f.data[f"blk.1.ffn_{part}_exps.weight"], want)
    gate = t["model.layers.1.mlp.shared_expert_gate.weight"]
    assert same(f.data["blk.1.ffn_gate_inp_shexp.weight"], gate[0])

    fused = {n: x for n, x in t.items() if ".experts." not in n}
    for i in range(2):
        to, dst = f"model.layers.{i}.mlp.experts.", f"blk.{i}.ffn_"
        fused[to + "gate_up_proj"] = np.concatenate(
            [f.data[dst + "gate_exps.weight"], f.data[dst + "up_exps.weight"]], axis=1)
        fused[to + "down_proj"] = f.data[dst + "down_exps.weight"]
    assert same_tensors(bench.convert(config, fused), f)


def test_jamba(bench):
    config, t = tiny.jamba()
    f = bench.convert(config, t)
    assert values(f, "jamba.", "attention.head_count_kv", "expert_count", "expert_used_count",
                  "ssm.time_step_rank", "feed_forward_length") == [[0, 1], 3, 2, 2, 12]
    p = "model.layers.0.mamba."
    assert same(f.data["blk.0.ssm_dt_norm.weight"], t[p + "dt_layernorm.weight"])
    assert same(f.data["blk.1.ffn_gate_inp.weight"],
                t["model.layers.1.feed_forward.router.weight"])


def test_jamba_of_another_width_is_refused(bench):
    code, err = bench.refuse(*tiny.jamba(E=12))
    assert code == 4 and "twice the width" in err


def test_rwkv_in_place_of_the_attention_of_qwen(bench):
    config, t = tiny.rwkv6qwen2()
    f = bench.convert(config, t)
    assert values(f, "rwkv6qwen2.", "wkv.head_size", "attention.head_count_kv", "token_shift_count",
                  "time_mix_extra_dim", "time_decay_extra_dim") == [2, 2, 1, 3, 5]
    p = "model.layers.1.self_attn."
    fused = f.data["blk.1.time_mix_lerp_fused.weight"].reshape(5, -1)
    for row, c in enumerate("wkvrg"):      # the groups of w1 and w2 come as r, k, v, w, g
        group = "rkvwg".index(c)
        assert same(fused[row], t[f"{p}time_maa_{c}"].reshape(-1))
        assert same(f.data["blk.1.time_mix_w1.weight"][3 * row:3 * row + 3],
                    t[p + "time_maa_w1"].T[3 * group:3 * group + 3])
        assert same(f.data["blk.1.time_mix_w2.weight"][row], t[p + "time_maa_w2"][group].T)
    assert same(f.data["blk.1.time_mix_key.bias"], t[p + "k_proj.bias"])

    for gated, normed in ((True, True), (False, False)):
        config, t = tiny.arwkv7(gated=gated, normed=normed)
        f = bench.convert(config, t)
        p = "model.layers.0.self_attn.time_mixer."
        assert values(f, "arwkv7.", "wkv.head_size", "attention.gate_lora_rank") == [4, 7 * gated]
        assert f.data["blk.0.time_mix_lerp_fused.weight"].shape[0] == 5 + gated
        assert same(f.data["blk.0.time_mix_v1.weight"], t[p + "a1"].T)     # a copy that nobody uses
        assert same(f.data["blk.1.time_mix_v1.weight"], t[p.replace("0", "1") + "v1"].T)
        assert ("blk.1.time_mix_ln.bias" in f.data) == normed


@pytest.mark.parametrize("key, value", [("use_rope", True), ("groupnorm_att", True),
                                        ("gate_rank_type", 2), ("balance_state", False)])
def test_other_forms_of_qrwkv_are_refused(bench, key, value):
    config, t = tiny.rwkv6qwen2()
    code, err = bench.refuse(config | {key: value}, t)
    assert code == 4 and key in err


def test_experts_of_granite_and_nemotron(bench):
    config, t = tiny.granite_moe()
    f = bench.convert(config, t)
    both = t["model.layers.1.block_sparse_moe.input_linear.weight"]
    assert same(f.data["blk.1.ffn_gate_exps.weight"], both[:, :5])
    assert same(f.data["blk.1.ffn_up_exps.weight"], both[:, 5:])
    assert values(f, "granitehybrid.expert_", "count", "used_count", "feed_forward_length",
                  "shared_feed_forward_length") == [3, 2, 5, 12]
    bench.out.unlink()
    f = bench.convert(*tiny.nemotron_h_moe())
    assert f.kv["general.architecture"] == "nemotron_h_moe"
    assert values(f, "nemotron_h_moe.", "expert_weights_scale", "expert_weights_norm",
                  "feed_forward_length") == [2.5, True, [0, 5, 0]]


# ---- Refusals

LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
          "original_max_position_embeddings": 64}


def rwkv7_fla():
    return tiny.rwkv7_fla_of(tiny.rwkv7()[1])


def refusals(make, *cases):
    """(make, change, what the message names); the name is that of the key if none is given."""
    return [(make, change, named[0] if named else next(iter(change))) for change, *named in cases]


@pytest.mark.parametrize("make, change, named", [
    *refusals(tiny.delta_net, ({"hidden_act": "powlu"}, "powlu"), ({"attnres_block_size": 4},)),
    *refusals(tiny.gated_delta_product, ({"num_householder": 2},)),
    *refusals(rwkv7_fla, ({"attn": {"layers": [1], "num_heads": 2}},),
              ({"value_dim": [D, 2 * D]},)),
    *refusals(tiny.transformer,
              ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_type"),
              ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
              ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
              ({"rope_scaling": LLAMA3}, "low_freq_factor"),
              ({"rope_scaling": LLAMA3 | {"high_freq_factor": None}}, "high_freq_factor"),
              ({"rope_scaling": {"rope_type": "default", "factor": 4}}, "factor"),
              ({"use_sliding_window": True},), ({"layer_types": ["sliding_attention"] * L},)),
    *refusals(tiny.qwen35, ({"attention_bias": True},), ({"attn_output_gate": False},),
              ({"layer_types": ["linear_attention"]},),
              ({"layer_types": ["linear_attention"] * 2}, "only one kind"),
              ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
              ({"rope_parameters": {"mrope_section": "x"}}, "mrope_section"),
              ({"linear_num_key_heads": 3}, "key heads")),
    *refusals(tiny.bamba, ({"attn_layer_indices": [2]},), ({"attn_rotary_emb": 4},),
              ({"mamba_n_groups": 2},), ({"mlp_bias": True},),
              ({"rope_parameters": {"rope_type": "yarn"}},)),
    *refusals(tiny.granitehybrid, ({"position_embedding_type": "alibi"},), ({"mamba_n_groups": 2},),
              ({"attention_multiplier": 0},), ({"layer_types": ["mamba", "moe"]},),
              ({"layer_types": ["mamba"]},),
              ({"layer_types": ["mamba", "mamba"]}, "no layer is attention"),
              ({"num_key_value_heads": 2},), ({"time_step_limit": [0.1, 1.0]},),
              ({"mamba_proj_bias": True},)),
    *refusals(tiny.falcon_h1, ({"mamba_rms_norm": False},), ({"mamba_norm_before_gate": True},),
              ({"ssm_multipliers": [1.0]},), ({"mlp_multipliers": "x"},),
              ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_type"),
              ({"attention_bias": True},)),
    *refusals(tiny.qwen35moe, ({"num_experts_per_tok": 4}, "expected at most num_experts, 3"),
              ({"num_experts": 4}, "gate.weight has shape [3, 8]; expected [4, 8]"),
              ({"num_experts": 2}, "gate.weight has shape [3, 8]")),
    *refusals(tiny.nemotron_h_moe, ({"n_group": 2},),
              ({"moe_latent_size": 4}, "fc1_latent_proj.weight is missing")),
    *refusals(tiny.nemotron_h_latent, ({"moe_latent_size": 4}, "has shape [6, 8]; expected [4, 8]"),
              ({"moe_latent_size": None}, "up_proj.weight has shape [5, 6]; expected [5, 8]")),
    *refusals(tiny.granite_moe, ({"num_local_experts": 0},)),
    *refusals(tiny.qwen3next, ({"norm_topk_prob": False},), ({"mlp_only_layers": [0]},),
              ({"decoder_sparse_step": 2},)),
    *refusals(tiny.kimi_linear, ({"layer_types": ["full_attention"] * 2},),
              ({"mlp_layer_types": ["sparse", "dense"]},), ({"moe_renormalize": False},),
              ({"linear_attn_config": {"full_attn_layers": [1]}}, "full_attn_layers"),
              ({"linear_attn_config": {"new": 1}},), ({"qk_rope_head_dim": 3},),
              ({"num_experts_per_token": 4}, "expected at most num_experts, 3")),
    *refusals(tiny.lfm2, ({"layer_types": ["conv", "conv"]}, "no layer is attention"),
              ({"conv_bias": True},), ({"rope_parameters": {"rope_type": "yarn"}},)),
    *refusals(tiny.lfm2moe, ({"num_dense_layers": 0},), ({"use_expert_bias": False},)),
    *refusals(tiny.bailingmoe3, ({"rope_parameters": {"rope_type": "yarn"}},),
              ({"kda_safe_gate": False},), ({"n_group": 3},), ({"value_norm": True},),
              ({"up_proj_norm": True},), ({"use_nGPT": True},), ({"use_mla_nope": True},),
              ({"use_kda_lora": True},), ({"scale_router_input": True},), ({"use_qk_norm": False},),
              ({"linear_silu": False},), ({"group_norm_size": 4},), ({"rotary_dim": 4},),
              ({"num_kv_heads_for_linear_attn": 1},), ({"scoring_func": "softmax"},),
              ({"topk_method": "greedy"},), ({"router_dtype": "bf16"},),
              ({"expert_swiglu_limit_list": [4.0]},), ({"expert_swiglu_limit_list": 4},),
              ({"share_expert_swiglu_limit_list": [0, -1]},)),
])
def test_configurations_that_are_refused(bench, make, change, named):
    config, t = make()
    code, err = bench.refuse(config | change, t)
    assert code == 4 and named in err, err


def test_a_missing_expert_and_rosa_are_refused(bench):
    config, t = tiny.qwen35moe()
    t = {n: x for n, x in t.items() if "layers.1.mlp.experts.1.up_proj" not in n}
    code, err = bench.refuse(config, t)
    assert code == 4 and "experts.1.up_proj.weight is missing" in err
    _, t = tiny.rwkv7()
    code, err = bench.refuse(None, t | {"blocks.0.rosa.emb": np.zeros(3, np.float32)})
    assert code == 4 and "rosa" in err


def test_qwen3_next_splits_what_is_grouped_by_key_heads(bench):
    H, HV, K = 2, 4, 3
    f = bench.convert(*tiny.qwen3next(H, HV, K))
    assert f.kv["general.architecture"] == "qwen3next"
    _, t = tiny.qwen3next(H, HV, K)
    p = "model.layers.0.linear_attn."
    rows = t[p + "in_proj_qkvz.weight"].reshape(H, 2 * K + 2 * HV // H * K, D)
    q, k, v, z = np.split(rows, [K, 2 * K, 2 * K + HV // H * K], axis=1)
    assert same(f.data["blk.0.attn_qkv.weight"],
                np.concatenate([x.reshape(-1, D) for x in (q, k, v)]))
    assert same(f.data["blk.0.attn_gate.weight"], z.reshape(-1, D))
    assert same(f.data["blk.0.ssm_ba.weight"], t[p + "in_proj_ba.weight"])


def test_kimi_linear(bench):
    config, t = tiny.kimi_linear()
    f = bench.convert(config, t)
    arch = "kimi-linear."
    assert values(f, arch + "attention.", "kv_lora_rank", "key_length_mla", "value_length_mla",
                  "key_length", "head_count_kv") == [6, 7, 7, 8, [0, 1]]
    assert values(f, arch, "kda.head_dim", "expert_shared_count", "feed_forward_length") == [3, 1,
                                                                                            12]
    kv = t["model.layers.1.self_attn.kv_b_proj.weight"].reshape(2, 12, 6)
    assert same(f.data["blk.1.attn_k_b.weight"], np.swapaxes(kv[:, :5], 1, 2))
    assert same(f.data["blk.1.attn_v_b.weight"], kv[:, 5:])
    assert f.ne["blk.0.ssm_conv1d_q.weight"] == [4, 1, 6] and f.ne["blk.0.ssm_a"] == [1, 2]
    assert same(f.data["blk.1.ffn_down_exps.weight"][2],
                t["model.layers.1.block_sparse_moe.experts.2.w2.weight"])
    # the layout of the release
    release = {n.replace("0.block_sparse_moe.", "0.mlp."): x for n, x in t.items()}
    spec = {"kda_layers": [1], "full_attn_layers": [2], "num_heads": 2, "head_dim": 3,
            "short_conv_kernel_size": 4}
    config = {k: v for k, v in config.items() if k not in ("layer_types", "mlp_layer_types")}
    bench.out.unlink()
    assert same_tensors(f, bench.convert(config | {"linear_attn_config": spec}, release))


@pytest.mark.parametrize("rank", [0, 3])
def test_ling(bench, rank):
    config, t = tiny.bailingmoe3(RQ=rank)
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "bailingmoe3"
    assert values(f, "bailingmoe3.", "kda.gate_lower_bound", "expert_group_count",
                  "expert_group_used_count", "expert_gating_func") == [-4.0, 2, 1, 2]
    assert f.kv.get("bailingmoe3.attention.q_lora_rank") == (rank or None)
    assert ("blk.1.attn_q_b.weight" in f.data) == (rank > 0)
    a = t["model.layers.0.attention.A_log"]
    assert np.allclose(f.data["blk.0.ssm_a"].ravel(), np.exp(a), rtol=1e-6)
    assert f.ne["blk.0.ssm_f_a.weight"] == [D, 6] and f.ne["blk.1.attn_gate.weight"] == [D, 2]


# the other keys of published models of this architecture
LING_RELEASED = {
    "embedding_dropout": 0.0, "output_dropout": 0.0, "attention_dropout": 0.0,
    "expert_swiglu_limit_list": None, "share_expert_swiglu_limit_list": None,
    "gated_attention_proj_granularity_type": "head_wise", "group_norm_size": 1, "head_dim": 3,
    "hidden_act": "silu", "kda_safe_gate": True, "layer_group_size": 2, "linear_silu": True,
    "max_window_layers": 20, "moe_router_enable_expert_bias": True, "mtp_loss_scaling_factor": 0,
    "mtp_use_kda": False, "no_kda_lora": True, "num_key_value_heads": 2,
    "num_kv_heads_for_linear_attn": 0, "num_shared_experts": 1, "output_router_logits": False,
    "partial_rotary_factor": 0.5, "q_lora_rank": None, "rope_interleave": True,
    "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 6e6, "rope_type": "default"},
    "rotary_dim": 2, "router_dtype": "fp32", "scale_router_input": False,
    "score_function": "sigmoid", "scoring_func": "sigmoid", "seq_aux": True,
    "short_conv_kernel_size": 4, "topk_method": "noaux_tc", "up_proj_norm": False,
    "use_bias": False, "use_kda_lora": False, "use_mla_nope": False, "use_nGPT": False,
    "use_qk_norm": True, "use_qkv_bias": False, "value_norm": False}


def test_ling_as_released(bench):
    """All keys and names of the release, and the layer that predicts several tokens."""
    config, t = tiny.bailingmoe3()
    f = bench.convert(config, t)
    bench.out.unlink()
    del config["layer_types"]
    release = {n.replace("0.attention.dense", "0.attention.o_proj"): x for n, x in t.items()}
    assert len(release) == len(t) and release.keys() != t.keys()
    draft = {n.replace("layers.1.", "layers.2."): x for n, x in t.items() if "layers.1." in n}
    draft["model.layers.2.eh_proj.weight"] = np.zeros((D, 2 * D), np.float32)
    limits = {"expert_swiglu_limit_list": [0, 4, 4], "share_expert_swiglu_limit_list": [0, None, 5]}
    config |= LING_RELEASED | {"num_nextn_predict_layers": 1}
    g = bench.convert(config, release | draft)
    assert same_tensors(f, g)
    assert "several tokens are skipped" in g.kv["lrnn.source"]
    assert "bailingmoe3.swiglu_clamp_exp" not in g.kv
    bench.out.unlink()
    h = bench.convert(config | limits, release | draft)
    assert h.kv["bailingmoe3.swiglu_clamp_exp"] == [0.0, 4.0]
    assert "bailingmoe3.swiglu_clamp_shexp" not in h.kv           # only of the skipped layer


def test_nemotron_with_a_latent_width(bench):
    config, t = tiny.nemotron_h_latent()
    f = bench.convert(config, t)
    assert f.kv["nemotron_h_moe.moe_latent_size"] == 6
    src = "backbone.layers.1.mixer."
    assert same(f.data["blk.1.ffn_latent_down.weight"], t[src + "fc1_latent_proj.weight"])
    assert same(f.data["blk.1.ffn_latent_up.weight"], t[src + "fc2_latent_proj.weight"])
    assert f.ne["blk.1.ffn_up_exps.weight"] == [6, 5, 3]


def test_a_router_in_the_wrong_layers(bench):
    config, t = tiny.bailingmoe3()
    t["model.layers.0.mlp.gate.weight"] = t["model.layers.1.mlp.gate.weight"]
    del t["model.layers.1.mlp.gate.weight"]
    code, err = bench.refuse(config, t)
    assert code == 4 and "layers with a router are [0]" in err


def test_limit_of_nemotron(bench):
    """transformers limits Δ; NVIDIA's own layout has a pattern and no limit."""
    config, t = tiny.nemotron_h()
    f = bench.convert(config | {"time_step_min": 0.25}, t)
    assert f.kv["nemotron_h.dt_min"] == 0.25 and "llama.cpp" in f.kv["lrnn.source"]
    del config["layers_block_type"]
    bench.out.unlink()
    f = bench.convert(config | {"time_step_min": 0.25, "hybrid_override_pattern": "M-*"}, t)
    assert "nemotron_h.dt_min" not in f.kv


def test_xlstm(bench):
    config, t = tiny.xlstm()
    f = bench.convert(config, t)
    assert values(f, "lrnn.", "head_count", "key_length", "qkv_block_length", "conv_width",
                  "slstm_head_count", "slstm_function", "slstm_conv_width") == [
                      2, 8, 4, 4, 2, "slstm", 0]
    assert list(f.kv["lrnn.slstm"]) == [0, 1] and f.kv["lrnn.eigenvalues"] == "family"
    cell = "xlstm_block_stack.blocks.1.xlstm."
    # the matrix called fgate makes the input gate
    assert same(f.data["blk.1.slstm_i.weight"], t[cell + "fgate.weight"])
    assert same(f.data["blk.1.slstm_f.weight"], t[cell + "igate.weight"])
    assert same(f.data["blk.1.ssm_norm.weight"], 1 + t[cell + "group_norm.weight"])
    half = t["xlstm_block_stack.blocks.1.ffn.proj_up.weight"]
    assert same(f.data["blk.1.ffn_up.weight"], half[len(half) // 2:])


def test_xlstm_layouts_of_the_backends(bench):
    """The backend `cuda` saves the recurrent matrix transposed, and the biases by head."""
    config, t = tiny.xlstm()
    cell = "xlstm_block_stack.blocks.1.xlstm.slstm_cell."
    kernel, bias = t[cell + "_recurrent_kernel_"], t[cell + "_bias_"]
    H, _, d = kernel.shape
    other = t | {cell + "_recurrent_kernel_": np.ascontiguousarray(kernel.transpose(0, 2, 1)),
                 cell + "_bias_": bias.reshape(4, H, d).transpose(1, 0, 2).reshape(-1).copy()}
    f = bench.convert(config, t)
    bench.out.unlink()
    assert same_tensors(f, bench.convert(config, other))


@pytest.mark.parametrize("change, text", [
    ({"slstm_at": [2]}, "config.yaml: slstm_at is [2]; expected 'all' or a list of blocks from 0 "
                        "to 1"),
    ({"slstm_block": {"slstm": {"function": "gru"}}},
     "config.yaml: slstm_block.slstm.function is 'gru'; expected 'slstm' or 'lstm'"),
    ({"slstm_block": {"slstm": {"num_heads": 2}, "feedforward": {"act_fn": "relu"}}},
     "config.yaml: slstm_block.feedforward.act_fn is 'relu'; expected 'gelu'"),
    ({"glstm_block": {}}, "config.yaml: unknown key glstm_block = {}; it may change what the model "
                          "computes"),
])
def test_xlstm_refusals(bench, change, text):
    config, t = tiny.xlstm()
    code, err = bench.refuse(config | change, t)
    assert code == 4 and text in err


def test_lfm2(bench):
    config, t = tiny.lfm2moe()
    f = bench.convert(config, t)
    assert f.kv["general.architecture"] == "lfm2moe"
    assert same(f.data["token_embd_norm.weight"], t["model.embedding_norm.weight"])
    assert same(f.data["blk.0.shortconv.conv.weight"], t["model.layers.0.conv.conv.weight"][:, 0])
    assert same(f.data["blk.0.ffn_up.weight"], t["model.layers.0.feed_forward.w3.weight"])
    assert same(f.data["blk.1.attn_output.weight"], t["model.layers.1.self_attn.out_proj.weight"])
    assert f.ne["blk.1.ffn_gate_exps.weight"] == [D, 5, 3]


def test_xlstm_configuration_in_yaml(tmp_path):
    """The section `model`, without aliases: a few lines of those can expand to gigabytes."""
    path = tmp_path / "config.yaml"
    path.write_text("model:\n  num_blocks: 2\n  slstm_at: [1]\n")
    assert read_yaml(path) == {"num_blocks": 2, "slstm_at": [1]}
    for text, why in (("a: &x [1]\nb: *x\n", "aliases are not supported"),
                      ("a: [1\n", "not valid YAML"), ("- 1\n", "found a list"),
                      ("a: " + "[" * 100 + "]" * 100, "nested more than 64 deep"),
                      ("a: " + "b" * (1 << 20), "more than 1048576 bytes"),
                      ("a: !!python/object:os.system 1\n", "not valid YAML")):
        path.write_text(text)
        with pytest.raises(ConvertError, match=why):
            read_yaml(path)

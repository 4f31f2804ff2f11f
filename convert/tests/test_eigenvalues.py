"""The sign is never guessed."""

import pytest
import tiny

SIGNED_BY_CONFIG = {"delta_net": tiny.delta_net, "gated_delta_net": tiny.gated_delta_net, "kda": tiny.kda,
                    "gated_delta_product": lambda: tiny.delta_product("C")}
WITHOUT_SWITCH = {"mamba": tiny.mamba, "mamba2": tiny.mamba2, "gla": tiny.gla}
NEVER = {"retnet": tiny.retnet, "hgrn2": tiny.hgrn2, "mlstm": tiny.xlstm, "rwkv6": tiny.rwkv6_official, "rwkv7": tiny.rwkv7_official,
         "transformer": tiny.llama}


@pytest.mark.parametrize("family", SIGNED_BY_CONFIG)
@pytest.mark.parametrize("value", [True, False])
def test_auto_follows_the_config(bench, family, value):
    config, t = SIGNED_BY_CONFIG[family]()
    f = bench.convert(config | {"allow_neg_eigval": value}, t)
    assert f.kv["lrnn.eigenvalues"] == ("[-1,1]" if value else "[0,1]")
    assert f.kv["lrnn.eigenvalues_source"] == f"config: allow_neg_eigval = {str(value).lower()}"
    assert f.kv["lrnn.eigenvalues_source"] in bench.err


@pytest.mark.parametrize("family", SIGNED_BY_CONFIG | WITHOUT_SWITCH)
def test_the_option_overrides(bench, family):
    config, t = (SIGNED_BY_CONFIG | WITHOUT_SWITCH)[family]()
    f = bench.convert(config, t, "--eigenvalues", "signed")
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]" and f.kv["lrnn.eigenvalues_source"] == "--eigenvalues signed"
    assert f.kv["general.architecture"] == "lrnn"          # a signed Mamba is never called mamba
    f = bench.convert(config, t, "--eigenvalues", "unsigned")
    assert f.kv["lrnn.eigenvalues"] == "[0,1]"


@pytest.mark.parametrize("family", WITHOUT_SWITCH)
def test_auto_without_a_switch_is_unsigned(bench, family):
    f = bench.convert(*WITHOUT_SWITCH[family]())
    assert f.kv["lrnn.eigenvalues"] == "[0,1]" and "no switch" in f.kv["lrnn.eigenvalues_source"]


def test_state_spaces_fork_says_so(bench):
    config, t = tiny.mamba()
    f = bench.convert(config | {"ssm_cfg": {"positive_and_negative": True}}, t)
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]" and f.kv["general.architecture"] == "lrnn"


@pytest.mark.parametrize("family", NEVER)
def test_families_without_a_signed_form_refuse(bench, family):
    code, err = bench.refuse(*NEVER[family](), "--eigenvalues", "signed")
    assert code == 4 and family in err and "signed" in err


def test_delta_nets_lie_is_named(bench):
    config, t = tiny.delta_net()
    f = bench.convert(config | {"allow_neg_eigval": True}, t)
    assert "2026-04" in bench.err and "--eigenvalues" in bench.err and "2026-04" in f.kv["lrnn.source"]
    bench.convert(config, t, "--eigenvalues", "signed")
    assert "2026-04" not in bench.err                      # the user has said it


def test_a_flag_that_is_not_a_flag(bench):
    config, t = tiny.delta_net()
    code, err = bench.refuse(config | {"allow_neg_eigval": "yes"}, t)
    assert code == 4 and "allow_neg_eigval" in err

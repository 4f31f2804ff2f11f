"""The eigenvalue range is never guessed."""

import pytest
import tiny

from lrnn_convert.family import Range

BY_KEY = tiny.families(Range.BY_KEY)
BY_OPTION = tiny.families(Range.BY_OPTION)
NEVER_SIGNED = tiny.families(Range.UNSIGNED, Range.OWN)


def test_every_family_is_tested():
    assert sorted(BY_KEY + BY_OPTION + NEVER_SIGNED) == sorted(tiny.families())


@pytest.mark.parametrize("family", BY_KEY)
@pytest.mark.parametrize("value", [True, False])
def test_auto_follows_the_config(bench, family, value):
    config, t = tiny.make(family)
    f = bench.convert(config | {"allow_neg_eigval": value}, t)
    assert f.kv["lrnn.eigenvalues"] == ("[-1,1]" if value else "[0,1]")
    source = f"config: allow_neg_eigval = {str(value).lower()}"
    assert f.kv["lrnn.eigenvalues_source"] == source and source in bench.err


@pytest.mark.parametrize("family", BY_KEY + BY_OPTION)
def test_the_option_overrides(bench, family):
    config, t = tiny.make(family)
    f = bench.convert(config, t, "--eigenvalues", "signed")
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]"
    assert f.kv["lrnn.eigenvalues_source"] == "--eigenvalues signed"
    assert f.kv["general.architecture"] == "lrnn"          # a signed Mamba is never called mamba
    f = bench.convert(config, t, "--eigenvalues", "unsigned")
    assert f.kv["lrnn.eigenvalues"] == "[0,1]"


@pytest.mark.parametrize("family", BY_OPTION)
def test_auto_without_a_switch_is_unsigned(bench, family):
    f = bench.convert(*tiny.make(family))
    assert f.kv["lrnn.eigenvalues"] == "[0,1]"
    assert "no switch" in f.kv["lrnn.eigenvalues_source"]


def test_switch_of_the_state_spaces_fork(bench):
    config, t = tiny.mamba()
    f = bench.convert(config | {"ssm_cfg": {"positive_and_negative": True}}, t)
    assert f.kv["lrnn.eigenvalues"] == "[-1,1]" and f.kv["general.architecture"] == "lrnn"


@pytest.mark.parametrize("family", NEVER_SIGNED)
def test_families_without_a_signed_form_refuse(bench, family):
    code, err = bench.refuse(*tiny.make(family), "--eigenvalues", "signed")
    assert code == 4 and family in err and "signed" in err


def test_the_unreliable_switch_of_delta_net_is_noted(bench):
    config, t = tiny.delta_net()
    f = bench.convert(config | {"allow_neg_eigval": True}, t)
    assert "2026-04" in bench.err and "--eigenvalues" in bench.err
    assert "2026-04" in f.kv["lrnn.source"]
    bench.convert(config, t, "--eigenvalues", "signed")
    assert "2026-04" not in bench.err                      # the user has decided


def test_a_switch_that_is_not_a_boolean(bench):
    config, t = tiny.delta_net()
    code, err = bench.refuse(config | {"allow_neg_eigval": "yes"}, t)
    assert code == 4 and "allow_neg_eigval" in err

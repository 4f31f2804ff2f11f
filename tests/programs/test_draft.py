"""lrnn-cli --draft-lookup: the text, the scores and the saved state are those without drafts."""

import re

import pytest

# repeats itself, so that drafts are accepted, and not always, so that some are rejected
PROMPT = "".join(f"for (int i = 0; i < {n}; ++i) {{ sum += table[i]; }}\n" for n in range(20, 32))
SAMPLERS = {
    "greedy": ["--greedy"],
    "sampled": ["--temp", "0.5", "-s", "7"],
    "penalty": ["--temp", "0.8", "-s", "3", "--repeat-penalty", "1.3", "--repeat-last", "32"],
    "hot": ["--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-s", "1"],
}


@pytest.fixture(scope="module", params=["deltaproduct2 Q8_0", "deltaproduct2 Q4_0", "delta Q8_0"])
def quantized(request, programs_in, root, tmp_path_factory):
    """The programs, in a folder with a quantized model. With one factor per token, snapshots can be
    inside chunks."""
    model, name = request.param.split()
    lrnn = programs_in(tmp_path_factory.mktemp("quantized"))
    lrnn.run("lrnn-quantize", root / f"models/text-{model}-neg.gguf", "m.gguf", name,
             "--allow-requantize")
    return lrnn


def generate(lrnn, *args, prompt=PROMPT, **options):
    return lrnn.run("lrnn-cli", "-m", "m.gguf", "-p", prompt, "-t", "1", *args, **options)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_same_text(quantized, sampler):
    args = [*SAMPLERS[sampler], "-n", "150", "--jsonl"]  # with the log-probability of every token
    plain = generate(quantized, *args).stdout
    for n in (1, 7, 31):
        assert generate(quantized, *args, "--draft-lookup", n).stdout == plain


def test_same_state(quantized):
    """Also if the end of the text cuts a draft."""
    states = set()
    for n in (0, 5, 31):
        for end in (["-n", "61"], ["-n", "200", "--stop", "["]):
            generate(quantized, "--greedy", "-s", "1", *end, "--draft-lookup", n, "--state-save",
                     "s.state")
            states.add((end[1], (quantized.work / "s.state").read_bytes()))
    assert len(states) == 2


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", ["qwen35moe", "qwen3next"])
def test_same_text_of_a_mixture_with_its_draft_block(lrnn, name, kind):
    lrnn.text_model(f"draft/{name}", "text.gguf")
    lrnn.run("lrnn-quantize", "text.gguf", "m.gguf", kind)
    calls = set()
    for sampler in ("greedy", "sampled"):
        args = [*SAMPLERS[sampler], "-n", "60", "--jsonl"]
        plain = generate(lrnn, *args).stdout
        for n in (1, 3, 8):
            done = generate(lrnn, *args, "--draft-mtp", n)
            assert done.stdout == plain
            calls.add(re.search(r"([\d.]+) per call", done.stderr)[1])
    assert calls                           # drafts were made


def test_fewer_calls(quantized):
    done = generate(quantized, "--greedy", "-n", "200", "--draft-lookup", "16")
    per_call = float(re.search(r"generated \([\d.]+/s, ([\d.]+) per call\)", done.stderr)[1])
    assert per_call > 1.5


def test_full_cache(lrnn):
    """Drafts do not need more of the cache than the text."""
    lrnn.text_model("olmo_hybrid", "m.gguf")
    args = ["--greedy", "-n", "200", "-c", "160", "--cache-type", "f32"]
    texts = {generate(lrnn, *args, "--draft-lookup", n, prompt="abcabcabc" * 8,
                      code=lrnn.Code.STOPPED, stderr="88 generated").stdout for n in (0, 31)}
    assert len(texts) == 1

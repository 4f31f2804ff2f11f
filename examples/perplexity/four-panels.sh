#!/bin/sh
# The figure of arXiv 2411.12537 on length extrapolation: two models on four data sets.
#
#     four-panels.sh [--download] DATA OUT BASELINE.gguf OTHER.gguf [option of lrnn-perplexity run]...
#
# DATA has a folder per data set: codeparrot, math-hard, triviaqa, slimpajama (docs/datasets.md).
# --download fetches those that are missing from the hub.
# Parquet and Arrow files are first converted to JSON lines in OUT/data. The figure is
# OUT/report.svg. If the script was stopped, call it again: it continues where it was.
set -eu

fail() {
    echo "four-panels.sh: $1" >&2
    exit 2
}

download=false
if [ "${1:-}" = --download ]; then
    download=true
    shift
fi
[ $# -ge 4 ] || fail "expected DATA OUT BASELINE.gguf OTHER.gguf"
data=$1 out=$2 baseline=$3 other=$4
shift 4
bin=${LRNN_BIN:-$(dirname "$0")/../../build/bin}
[ -x "$bin/lrnn-perplexity" ] || fail "no programs in $bin; set LRNN_BIN to their folder"
for set in codeparrot math-hard triviaqa slimpajama; do
    if $download && [ ! -d "$data/$set" ]; then
        mkdir -p "$data"
        rm -rf "$data/$set.part" # of a download that was stopped
        mkdir "$data/$set.part"
        "$bin/lrnn-convert" data --download $set -o "$data/$set.part/$set.jsonl"
        mv "$data/$set.part" "$data/$set"
    fi
    [ -d "$data/$set" ] || fail "there is no folder $data/$set; give --download (docs/datasets.md)"
done

mkdir -p "$out/data"
for set in codeparrot math-hard triviaqa slimpajama; do
    from=$data/$set
    if find -L "$from" -type f \( -name '*.parquet' -o -name '*.arrow' \) | grep -q .; then
        [ -e "$out/data/$set.jsonl" ] || "$bin/lrnn-convert" data "$from" -o "$out/data/$set.jsonl"
        from=$out/data/$set.jsonl
    fi
    "$bin/lrnn-perplexity" run -m "$baseline" -m "$other" --dataset $set --data "$from" \
        --out "$out" --resume "$@"
done
"$bin/lrnn-perplexity" report "$out" --format table,json,csv,svg,html --out "$out" \
    --baseline "$(basename "$baseline" .gguf)"

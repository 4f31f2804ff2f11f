"""lrnn-convert data: Parquet and Arrow give the documents of the other containers."""


def test_parquet_and_arrow(lrnn, root, config):
    data = root / "tests/data/dataset"
    outputs = []
    for container in ("parquet", "arrow-file", "arrow-stream"):
        gzip = container == "parquet" and config["gzip"]
        outputs.append(f"{container}.jsonl" + (".gz" if gzip else ""))
        lrnn.run("lrnn-convert", "data", data / container, "-o", outputs[-1], "--quiet")
    # the reader in C finds the same documents with the same fingerprint in all of them
    lrnn.tool("test-dataset", "same", *outputs)

#!/usr/bin/env python3
"""Records the responses of tests/data/lm-eval/exchange.jsonl again, with its requests.

    lrnn-server -m models/text-deltaproduct2-neg.gguf --port 8080 &
    tests/tools/record-lm-eval.py http://127.0.0.1:8080

Needed when the server rounds differently: a changed order of sums moves activations of 8 bits.
"""

import json
import sys
import urllib.request
from pathlib import Path

EXCHANGE = Path(__file__).resolve().parents[1] / "data/lm-eval/exchange.jsonl"


def main() -> None:
    rows = [json.loads(line) for line in EXCHANGE.read_text().splitlines()]
    for row in rows:
        body = json.dumps(row["request"]).encode() if row["method"] == "POST" else None
        request = urllib.request.Request(sys.argv[1] + row["path"], body, method=row["method"],
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            row["status"], response = reply.status, json.load(reply)
        for choice in response.get("choices", []):
            (choice["logprobs"] or {}).pop("content", None)  # which lm-eval does not read
        row["response"] = {key: response[key] for key in row["response"]}
    EXCHANGE.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()

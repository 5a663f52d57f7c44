"""What tf-eval prints."""

import json

from tfcli.cli.report import as_json, as_table

RESULTS = {
    "part": "all",
    "loss": 1.23456,
    "accuracy": 0.5,
    "accuracy_ci": [0.25, 0.75],
    "f1": 0.25,
    "f1_ci": None,
    "chrf": 12.3456,
    "n": 12345,
    "per_class": {
        "one": {"precision": 1.0, "f1": 0.5, "n": 1000},
        "a longer one": {"precision": 0.0, "f1": 0.0, "n": 7},
    },
    "samples": [{"source": "a", "hypothesis": "b\nc"}],
}


def test_a_score_stands_with_how_sure_it_is_and_each_class_and_sample_below():
    assert as_table(RESULTS).splitlines() == [
        "part      all",
        "loss      1.2346 nats per label",
        "accuracy  0.5000 (95 % between 0.2500 and 0.7500)",
        "f1        0.2500",
        "chrf      12.35",
        "n         12,345",
        "",
        "              precision         f1          n",
        "one              1.0000     0.5000      1,000",
        "a longer one     0.0000     0.0000          7",
        "",
        "source      a",
        "hypothesis  b",
        "            c",
    ]


def test_a_loss_of_tokens_is_said_to_be_one():
    assert "loss    2.0000 nats per token" in as_table({"loss": 2.0, "tokens": 3})


def test_the_json_object_has_all_of_it():
    assert json.loads(as_json(RESULTS)) == RESULTS and as_json(RESULTS).count("\n") == 0

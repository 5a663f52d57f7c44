"""The model card of an exported folder: what is known of the model, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tfcli.build import plain
from tfcli.checkpoint import Loaded
from tfcli.compose import flat, key_of
from tfcli.runlog import read_rows

PIPELINES = {  # what the Hub calls it, by family and by what the head gives
    ("decoder", "tokens"): "text-generation", ("encoder", "tokens"): "fill-mask",
    ("encoder", "class"): "text-classification", ("encoder", "tags"): "token-classification",
    ("encoder", "span"): "question-answering", ("encoder", "vector"): "feature-extraction",
}  # fmt: skip
GROUPS = ("preset", "family", "attention", "position", "norm", "placement", "ffn", "embedding", "head",
          "objective", "tokenizer", "data", "optimizer", "schedule")  # fmt: skip
OF_DATA = (
    "path",
    "source_path",
    "target_path",
    "dataset",
    "name",
    "config",
    "sample_by",
    "packing",
    "max_documents",
)
TRIES = {
    "tokens": ('--prompt "..."', '--text "a text with [MASK]"'),
    "class": ('--text "..."',) * 2,
    "tags": ('--text "..."',) * 2,
    "span": ('--question "..." --context "..."',) * 2,
    "vector": ('--text "..."',) * 2,
}


def card(loaded: Loaded, kind: str, name: str, dtype: str, command: str, where: Path | None) -> str:
    """The text of README.md; where: the run's folder, None: it comes from no run of ours."""
    parts = [
        front(loaded, kind),
        f"# {name}",
        opening(loaded, kind, dtype),
        table("What it is made of", choices_of(loaded)),
        table("Size", sizes(loaded)),
        table("Training", training(loaded, where)) if where else "",
        usage(loaded, kind, name),
        f"## How it was made\n\n```\n{command}\n```" if command else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def front(loaded: Loaded, kind: str) -> str:
    """What the Hub reads, as YAML; a licence is for the owner to say."""
    model = loaded.model
    lines = ["---", "library_name: transformers"]
    pipeline = PIPELINES.get((model.family, model.head.says))
    if pipeline:
        lines.append(f"pipeline_tag: {pipeline}")
    return "\n".join([*lines, "tags:", f"- {kind}", "- tfcli", "---"])


def opening(loaded: Loaded, kind: str, dtype: str) -> str:
    """One sentence."""
    family = loaded.model.family.replace("_", "-")
    article = "An" if family[0] == "e" else "A"
    return f"{article} {family}, as `{kind}` holds it, written by tfcli; its weights are {dtype}."


def choices_of(loaded: Loaded) -> dict[str, Any]:
    """The choice of each group."""
    chosen = loaded.config.choices
    names = GROUPS if from_run(loaded) else GROUPS[:9]
    found = {group: chosen[group] for group in names if chosen.get(group) is not None}
    own = [o for o in loaded.config.overrides if "." in key_of(o) and key_of(o).split(".")[0] in GROUPS[2:9]]
    return found | ({"with": " ".join(own)} if own else {})


def from_run(loaded: Loaded) -> bool:
    """Whether a run of ours trained it, so that its configuration speaks of data and training."""
    return (loaded.path / "manifest.json").is_file()


def sizes(loaded: Loaded) -> dict[str, Any]:
    """How large the model is."""
    size = {key: value for key, value in plain(loaded.config.size).items() if value is not None}
    if "n_kv_heads" in size:  # of which some attentions take no notice
        size["n_kv_heads"] = loaded.model.stack.layers[0].attention.branch.n_kv_heads
    n = sum(parameter.numel() for parameter in loaded.model.parameters())
    return {"parameters": f"{n:,}", "tokens of the vocabulary": f"{loaded.model.vocab_size:,}"} | size


def training(loaded: Loaded, run: Path) -> dict[str, Any]:
    """Steps, tokens, data, and the last scores up to the step of the checkpoint."""
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["step"] <= loaded.step]
    facts: dict[str, Any] = {"steps": loaded.step}
    tokens = last(rows, "tokens")
    if tokens is not None:
        facts["tokens"] = f"{tokens:,}"
    facts["data"] = loaded.config.choices.data
    data = flat(plain(loaded.config.data))
    for key in OF_DATA:  # of files their names: where they lie is no one else's business
        if data.get(key) is not None:
            facts[f"data.{key}"] = Path(data[key]).name if key.endswith("path") else data[key]
    loss = last(rows, "val_loss")
    if loss is not None and math.isfinite(float(loss)):
        facts["validation loss"] = f"{float(loss):.4f}"
        if loaded.model.head.says == "tokens" and loaded.model.family != "encoder":
            facts["validation perplexity"] = f"{math.exp(float(loss)):.4g}"
    return facts


def last(rows: list[dict[str, Any]], name: str) -> Any:
    """The newest number of that name; None: there is none."""
    return next((row[name] for row in reversed(rows) if row.get(name) is not None), None)


def table(title: str, facts: dict[str, Any]) -> str:
    """Facts under a title; text that is not the tool's own cannot leave its cell."""
    lines = [f"| {key} | `{cell(value)}` |" for key, value in facts.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines])


def cell(value: Any) -> str:
    """A value on one line, without what would end a cell or its code."""
    return " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")


def usage(loaded: Loaded, kind: str, name: str) -> str:
    """How to load it."""
    model = loaded.model
    given = TRIES[model.head.says][model.family == "encoder"]
    given = '--source "..."' if model.family == "encoder_decoder" else given
    return f"""## How to use it

```python
from transformers import AutoTokenizer, {kind}

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {kind}.from_pretrained("{name}")
```

```
tf-generate {name} {given}
```"""

"""What tf-eval prints: one JSON object, or a table to read."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent
from typing import Any

APART = ("samples", "per_class", "per_type")  # shown below the table
IN_NATS = ("loss", "pseudo_loss")


def as_json(results: dict[str, Any]) -> str:
    from tfcli.runlog import to_json

    return to_json(results)


def as_table(results: dict[str, Any]) -> str:
    """A row each, intervals behind their scores; below it each class, and samples."""
    from tfcli.console import table

    rows = [
        (name.replace("_", " "), shown(name, value, results))
        for name, value in results.items()
        if name not in APART and not name.endswith("_ci")
    ]
    lines = [dedent(table({"": rows})).strip()]
    lines += by_class(results.get("per_class") or results.get("per_type") or {})
    lines += by_sample(results.get("samples") or [])
    return "\n".join(lines)


def shown(name: str, value: Any, results: dict[str, Any]) -> Any:
    """A value as it is read: losses in their unit, a score with how sure it is."""
    if not isinstance(value, float):
        return value
    if name in IN_NATS:
        return f"{value:.4f} nats per {'token' if 'tokens' in results else 'label'}"
    digits = 2 if name.endswith(("perplexity", "bleu", "chrf")) else 4
    low, high = results.get(f"{name}_ci") or (None, None)
    sure = "" if low is None else f" (95 % between {low:.{digits}f} and {high:.{digits}f})"
    return f"{value:.{digits}f}{sure}"


def by_class(classes: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not classes:
        return
    names = list(next(iter(classes.values())))
    width = max(map(len, classes))
    yield "\n" + " " * width + "".join(f"  {name:>9}" for name in names)
    for label, rates in classes.items():
        cells = (f"{rate:9.4f}" if isinstance(rate, float) else f"{rate:9,}" for rate in rates.values())
        yield f"{label:<{width}}  " + "  ".join(cells)


def by_sample(samples: list[dict[str, str]]) -> Iterator[str]:
    for sample in samples:
        yield ""
        for name, text in sample.items():
            yield f"{name:<10}  " + text.replace("\n", "\n" + " " * 12)

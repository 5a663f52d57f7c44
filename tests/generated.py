"""tf-generate in this process: what it prints, as text, as objects, or as the one line of a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfcli.cli.generate import main


def output(capsys: pytest.CaptureFixture, *words: Any) -> str:
    main([str(word) for word in words])
    return capsys.readouterr().out


def objects(capsys: pytest.CaptureFixture, *words: Any) -> list[dict]:
    return [json.loads(line) for line in output(capsys, *words, "--json").splitlines()]


def refused(capsys: pytest.CaptureFixture, *words: Any) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    assert ended.value.code == 2 and captured.out == "" and captured.err.count("\n") == 1
    return captured.err

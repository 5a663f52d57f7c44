"""Models by their names on the Hub."""

from __future__ import annotations

from pathlib import Path

from tfcli.errors import ConfigError, one_line

WANTED = ["*.json", "model*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
OTHERS = ["onnx/*", "openvino/*", "original/*", "coreml/*"]  # the same model for other programs
PICKLES = ["pytorch_model*.bin"]  # only where there are no safetensors


def download(name: str) -> Path:
    """The folder of a model, fetched unless it is in the cache. Raises ConfigError where it cannot be had."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    def fetch(patterns: list[str]) -> Path:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=OTHERS))

    try:
        folder = fetch(WANTED)
        return folder if any(folder.glob("model*.safetensors")) else fetch([*WANTED, *PICKLES])
    except GatedRepoError:
        why = "its owner wants you to ask for access on its page, and to log in (hf auth login)"
    except RepositoryNotFoundError:
        why = "the Hub has no such model, or it is private (hf auth login)"
    except LocalEntryNotFoundError:
        why = "the Hub cannot be reached, and the model is not in its cache"
    except Exception as error:
        why = one_line(error)
    raise ConfigError(f"{name}: no such file or folder here; {why}")

"""A model of ours as a folder of Hugging Face's: complete and checked, or not there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tfcli.build import plain
from tfcli.checkpoint import Loaded, refused_by_the_disk
from tfcli.errors import ConfigError, RunError
from tfcli.hub.card import card, from_run
from tfcli.hub.holder import Held, holder
from tfcli.hub.names import Row, rows
from tfcli.hub.verify import Checked, verify
from tfcli.hub.weights import save
from tfcli.origin import load
from tfcli.tokenizer import Tokenizer

__all__ = ["Exported", "export", "holder"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
POOLING = {
    "first": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
}
OF_SENTENCES = "sentence_transformers.models"

Say = Callable[[str], None]


class Exported(NamedTuple):
    """What was written."""

    kind: str  # the class
    parameters: int
    checked: Checked


def export(
    where: str | Path,
    target: Path,
    shard: int = 5 * 10**9,
    dtype: str = "float32",
    folders: Sequence[Path] = (),
    say: Say = lambda text: None,
    command: str = "",
) -> Exported:
    """Writes a run, a checkpoint or a model folder as a folder that `transformers` loads, and compares.

    shard: bytes that a file of weights has at most. Raises ConfigError for a model that no class holds and a
    target that is there already, RunError where it cannot be written or says something else; then nothing is
    left.
    """
    refuse_present(target)
    loaded = load(where, "cpu", folders, say)
    refuse_prefixes(loaded)
    complete(loaded)
    also = ids(loaded)
    held = holder(loaded.config, also)
    move_positions(loaded, held)
    tokenizer = with_ends(loaded)
    with making(target) as folder:
        say("writing")
        mine = rows(
            loaded.model, held.architecture.table(held.kind), lambda n: held.architecture.rename(held.kind, n)
        )
        round_to(mine, DTYPES[dtype], dtype)
        with refused_by_the_disk():
            save(mine, folder, shard, DTYPES[dtype])
        write_json(folder / "config.json", {**held.said, **labels(loaded), **also, "dtype": dtype})
        tokenizer.save(folder)
        write_beside(loaded, folder, also)
        run = loaded.path.parent.parent if from_run(loaded) else None
        text = card(loaded, held.kind, target.resolve().name, dtype, command, run)
        (folder / "README.md").write_text(text, encoding="utf-8")
        say("checking")
        checked = verify(folder, held.kind, loaded.model, tokenizer)
    return Exported(held.kind, sum(p.numel() for p in loaded.model.parameters()), checked)


def refuse_prefixes(loaded: Loaded) -> None:
    """Raises ConfigError for a decoder whose prompts see themselves both ways: no class there does that."""
    if loaded.objective.prefix:
        raise ConfigError(
            f"objective={loaded.config.choices.objective}: prompts see themselves both ways, and no class of "
            "Hugging Face that is known here reads them so"
        )


def complete(loaded: Loaded) -> None:
    """Gives scores of a span the bias that all classes have: zeros, which are as good as none."""
    head = loaded.model.head
    if head.says == "span" and head.map.bias is None:
        head.map.bias = torch.nn.Parameter(torch.zeros(len(head.map.weight)))


def move_positions(loaded: Loaded, held: Held) -> None:
    """Puts learned positions behind as many rows without one as the class has."""
    offset = held.read.position.get("offset")
    if offset is None or loaded.config.position.offset == offset:
        return
    both = loaded.model.family == "encoder_decoder"
    for stack in (loaded.model.stack, loaded.model.encoder) if both else (loaded.model.stack,):
        for scheme in stack.positions:
            vectors = scheme.table.weight.detach()[scheme.offset :]
            table = vectors.new_zeros(offset + len(vectors), vectors.shape[1])
            table[offset:] = vectors
            scheme.table.weight, scheme.offset = torch.nn.Parameter(table), offset


# --- what stands beside the weights -------------------------------------------------------------------------


def ids(loaded: Loaded) -> dict[str, Any]:
    """The fields that name tokens, and how many there are."""
    tokenizer = loaded.tokenizer
    found: dict[str, Any] = {
        "vocab_size": loaded.model.vocab_size,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "pad_token_id": tokenizer.pad_id if tokenizer.has_pad else None,
    }
    if loaded.model.family == "encoder_decoder":
        found["decoder_start_token_id"] = loaded.objective.start_id
    return found


def labels(loaded: Loaded) -> dict[str, Any]:
    """The names of classes, where the head has some."""
    named = loaded.labels
    if named is None:
        return {}
    return {
        "id2label": {str(i): n for i, n in enumerate(named)},
        "label2id": {n: i for i, n in enumerate(named)},
    }


def with_ends(loaded: Loaded) -> Tokenizer:
    """The tokenizer that puts BOS and EOS around texts as the run had them. What a decoder goes on from has
    no end.
    """
    if not from_run(loaded):
        return loaded.tokenizer
    data, decoder = loaded.config.data, loaded.model.family == "decoder"
    bos, eos = bool(data.get("bos", True)), bool(data.get("eos", True))
    table = loaded.model.embedding.segments
    segments = table is not None and len(table.weight) > 1
    return loaded.tokenizer.with_ends(bos, eos and not decoder, segments=segments)


def write_beside(loaded: Loaded, folder: Path, also: dict[str, Any]) -> None:
    """How texts are written, of a model that writes; how a text's vector is pooled, of one that gives one."""
    if loaded.model.family != "encoder":
        named = {key: value for key, value in also.items() if key != "vocab_size" and value is not None}
        said = {k: v for k, v in loaded.generation.items() if k != "_from_model_config"}
        write_json(folder / "generation_config.json", named | said)
    head = plain(loaded.config.head)
    if loaded.model.head.says == "vector" and head["activation"] is None:
        write_pooling(folder, head, loaded.model.embedding.table.weight.shape[1])


def write_pooling(folder: Path, head: dict[str, Any], width: int) -> None:
    """What sentence-transformers reads."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] if head["normalise"] else []
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"{OF_SENTENCES}.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "1_Pooling").mkdir()
    modes = {mode: pool == head["pool"] for pool, mode in POOLING.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    (folder / "modules.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def write_json(path: Path, said: dict[str, Any]) -> None:
    """An object in a file."""
    path.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def round_to(mine: Sequence[Row], dtype: torch.dtype, name: str) -> None:
    """Makes our numbers those that are written. Raises ConfigError for one that the kind does not have."""
    if dtype is torch.float32:
        return
    with torch.no_grad():
        for row in mine:
            for piece in row.pieces:
                rounded = piece.view.to(dtype).to(piece.view.dtype)
                if rounded.isinf().any() and not piece.view.isinf().any():
                    most = torch.finfo(dtype).max
                    raise ConfigError(
                        f"--dtype {name}: {piece.name} has numbers beyond {most:g}; choose bfloat16"
                    )
                piece.view.copy_(rounded)


# --- the place ----------------------------------------------------------------------------------------------


def refuse_present(target: Path) -> None:
    """Raises ConfigError for a target that is there and holds something."""
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise ConfigError(f"{target}: is there already; name a new folder, or an empty one")


@contextmanager
def making(target: Path) -> Iterator[Path]:
    """A folder that gets its name when all is done; whatever happens before, nothing is left of it."""
    target = target.absolute()
    parents = [folder for folder in target.parents if not folder.exists()]  # the innermost first
    folder = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        yield folder
        open_up(folder)
        os.rename(folder, target)
    except BaseException as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        for made in parents:
            with suppress(OSError):
                made.rmdir()
        if isinstance(error, OSError):
            raise RunError(f"{target}: cannot be written ({error}); nothing is left") from None
        raise


def open_up(folder: Path) -> None:
    """Gives what was made in private the modes that new files and folders have."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        os.chmod(path, (0o777 if path.is_dir() else 0o666) & ~mask)

"""Tiny random models of `transformers` in folders, and what ours makes of the folders: both must say the
same.

Weights are drawn with a deviation of 0.15 and random gains and biases, so that nothing hides behind a 0 or a
1.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from model import published
from tokenizers import Tokenizer as Backend
from tokenizers import models
from torch import Tensor, nn

from tfcli import build, origin
from tfcli.batch import PAD, Batch
from tfcli.checkpoint import Loaded
from tfcli.compose import override
from tfcli.constraints import Constraints
from tfcli.hub.folder import Folder
from tfcli.hub.names import rows
from tfcli.hub.weights import save
from tfcli.opening import Opening
from tfcli.reader import evaluating
from tfcli.search import Ranking, search
from tfcli.tokenizer import Tokenizer

V, D, H, K, FF, L, CONTEXT = 40, 16, 4, 2, 24, 3, 64
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<mask>", "<extra_id_0>", "<extra_id_1>")
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
KEPT = ("vocab_size", "id2label", "label2id", "pad_token_id", "bos_token_id", "eos_token_id",
        "decoder_start_token_id")  # fmt: skip
shaken = published.shaken  # random numbers everywhere
NEAR, FAR = 1e-4, 1e-3  # what counts as the same, and as another


def tokenizer(size: int = V) -> Tokenizer:
    """A tokenizer of `size` tokens, characters and what models may want beside them."""
    characters = [chr(ord("a") + i) for i in range(26)] + [chr(0x4E00 + i) for i in range(max(0, size - 33))]
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *characters][:size])}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    backend.add_special_tokens([token for token in SPECIAL if token in vocabulary])
    roles = ("pad", "bos", "eos", "unk", "mask")
    return Tokenizer(backend, {role: f"<{role}>" for role in roles if f"<{role}>" in vocabulary})


def folder_of(theirs: nn.Module, where: Path) -> Path:
    """A folder with a model of theirs and a tokenizer of as many tokens."""
    theirs.save_pretrained(where)
    tokenizer(theirs.config.vocab_size).save(where)
    return where


def load(where: Path, *changes: str) -> Loaded:
    """What ours makes of a folder; changes: overrides that are another model on the same weights (a flip)."""
    if not changes:
        return origin.load(where)
    folder = Folder(where)
    folder.overrides = [*folder.overrides, *changes]
    config, own = folder.config(), folder.load_tokenizer()
    model = build.model(config, own.vocab_size, fill=False)
    folder.fill(model)
    objective = build.make(config.objective, "objective")
    objective.bind(own)
    return Loaded(model.eval(), own, config, 0, where, objective)


def ids(n_rows: int, width: int, seed: int = 5, size: int = V) -> Tensor:
    """(n_rows, width) tokens that are none of the special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(len(SPECIAL), size, (n_rows, width), generator=generator)


def ragged(
    width: int, lengths: Sequence[int], left: bool = False, size: int = V
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (B, width), their attention mask (1: there), and their positions, padded on one side."""
    places, n = torch.arange(width).expand(len(lengths), -1), torch.tensor(lengths)[:, None]
    there = places >= width - n if left else places < n
    positions = (places - (width - n if left else 0)).masked_fill(~there, PAD)
    return ids(len(lengths), width, size=size).masked_fill(~there, PAD_ID), there.long(), positions


def said(theirs: nn.Module, **inputs: Tensor) -> Tensor:
    """What a model of theirs scores."""
    with torch.no_grad():
        return theirs(**inputs).logits


# --- decoders -----------------------------------------------------------------------------------------------


def gap(
    loaded: Loaded, theirs: nn.Module, width: int = 24, lengths: Sequence[int] = (24, 9), left: bool = False
) -> float:
    """The largest difference of logits of ragged rows: decoders, and encoders that score each token."""
    tokens, mask, positions = ragged(width, lengths, left, min(V, theirs.config.vocab_size))
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if left and loaded.model.family == "decoder":
        inputs["position_ids"] = positions.clamp(min=0)
        if "position_ids" not in inspect.signature(theirs.forward).parameters:  # ALiBi has none
            del inputs["position_ids"]
    right = said(theirs, **inputs)
    with torch.no_grad():
        mine = loaded.model(Batch(tokens, positions=positions))
    assert mine.shape == right.shape
    return (mine - right)[mask.bool()].abs().max().item()


def greedy(model: nn.Module, tokens: Tensor, mask: Tensor, n: int) -> Tensor:
    """(B, n) the likeliest tokens, one after the other, by cached steps after ragged prompts."""
    with torch.inference_mode(), evaluating(model):
        state, new = model.begin(), []
        logits = model.step(tokens, state, present=mask.bool(), last=True)
        for _ in range(n):
            new.append(logits[:, -1].argmax(-1, keepdim=True))
            logits = model.step(new[-1], state, last=True)
    return torch.cat(new, dim=1)


def theirs_greedy(theirs: nn.Module, n: int, **inputs: Tensor) -> Tensor:
    """The same by `transformers`, from its cache; no token ends it."""
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.forced_eos_token_id = theirs.generation_config.forced_bos_token_id = None
    theirs.generation_config.bad_words_ids = None
    theirs.generation_config.pad_token_id = PAD_ID
    out = theirs.generate(
        **inputs, max_new_tokens=n, min_new_tokens=n, do_sample=False, num_beams=1, use_cache=True
    )
    return out[:, -n:]


def same_greedy(loaded: Loaded, theirs: nn.Module, n: int = 40, lengths: Sequence[int] = (9, 4)) -> None:
    """Both go on with the same n tokens after ragged prompts."""
    tokens, mask, _ = ragged(max(lengths), lengths, left=True)
    right = theirs_greedy(theirs, n, input_ids=tokens, attention_mask=mask)
    assert greedy(loaded.model, tokens, mask, n).tolist() == right.tolist()


# --- encoder-decoders ---------------------------------------------------------------------------------------


def gap_of_pairs(loaded: Loaded, theirs: nn.Module) -> float:
    """The largest difference of logits of ragged sources with targets."""
    source, mask, positions = ragged(14, (14, 6))
    target = ids(2, 9, seed=8)
    right = said(theirs, input_ids=source, attention_mask=mask, decoder_input_ids=target)
    with torch.no_grad():
        mine = loaded.model(Batch(target, source=source, source_positions=positions))
    assert mine.shape == right.shape
    return (mine - right).abs().max().item()


def same_greedy_of_sources(loaded: Loaded, theirs: nn.Module, n: int = 40) -> None:
    """Both write the same n tokens from ragged sources."""
    source, mask, positions = ragged(14, (14, 6))
    right = theirs_greedy(theirs, n, input_ids=source, attention_mask=mask)
    with torch.inference_mode(), evaluating(loaded.model):
        state = loaded.model.begin(source, positions)
        start = torch.full((2, 1), loaded.objective.start_id)
        logits, new = loaded.model.step(start, state, last=True), []
        for _ in range(n):
            new.append(logits[:, -1].argmax(-1, keepdim=True))
            logits = loaded.model.step(new[-1], state, last=True)
    assert torch.cat(new, dim=1).tolist() == right.tolist()


def same_beams(loaded: Loaded, theirs: nn.Module, width: int = 4, n: int = 12, alpha: float = 1.0) -> None:
    """Both find the same texts with the same scores from one source."""
    source, config = ids(1, 8, seed=11), theirs.generation_config
    config.forced_eos_token_id = config.forced_bos_token_id = config.bad_words_ids = None
    config.eos_token_id, config.pad_token_id = 9, PAD_ID  # a token like any other, so that some texts end
    out = theirs.generate(
        input_ids=source, attention_mask=torch.ones_like(source), num_beams=width, num_return_sequences=width,
        max_new_tokens=n, do_sample=False, length_penalty=alpha, early_stopping="never", output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    opening = Opening([loaded.objective.start_id], n, source[0].tolist())
    with torch.inference_mode(), evaluating(loaded.model):
        (mine,) = search(
            loaded.model,
            [opening],
            width,
            width,
            Ranking(alpha),
            Constraints(ends=(9,)),
            loaded.model.vocab_size,
            True,
        )
    for found, ids_there, score in zip(mine, out.sequences[:, 1:].tolist(), out.sequences_scores.tolist()):
        ids_there = ids_there[: ids_there.index(9) + 1] if 9 in ids_there else ids_there[:n]
        assert found.ids == ids_there and abs(found.score - score) < NEAR


# --- out and in again ---------------------------------------------------------------------------------------


def written(loaded: Loaded, source: Path, where: Path) -> Path:
    """Our weights in a folder of theirs, beside a config.json that is written anew from our configuration."""
    import json

    from tfcli.compose import flat

    folder = Folder(source)
    arch, kind = folder.architecture, folder.kind
    fields = arch.write(kind, flat(build.plain(loaded.config)))
    kept = {key: value for key, value in folder.said.items() if key in KEPT}
    where.mkdir(parents=True)
    (where / "config.json").write_text(json.dumps({**fields, **kept}))
    mine = rows(loaded.model, arch.table(kind), lambda name: arch.rename(kind, name))
    save(mine, where, shard=20_000, dtype=torch.float32)
    loaded.tokenizer.save(where)
    return where


def same_when_written(loaded: Loaded, theirs: nn.Module, source: Path, where: Path) -> nn.Module:
    """Written by us, `transformers` reads every weight, bit for bit as it was, and so do we; theirs, read
    again.
    """
    folder = written(loaded, source, where)
    again, report = type(theirs).from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    have = again.state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(have[name], tensor), name
    back = origin.load(folder)
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(back.model.state_dict()[name], tensor), name
    assert same_nodes(back.config, loaded.config) == []
    return again.eval()


def same_nodes(one: Any, other: Any) -> list[str]:
    """The keys in which the models of two configurations differ."""
    from tfcli.compose import flat
    from tfcli.start import MODEL

    a, b = (flat({g: build.plain(c.get(g)) for g in MODEL}) for c in (one, other))
    return sorted(key for key in {*a, *b} if a.get(key) != b.get(key))


def preset_nodes(said: dict[str, Any], *overrides: str) -> list[str]:
    """In which model keys a config.json of theirs and a preset of ours with these sizes differ."""
    from tfcli.compose import compose
    from tfcli.hub import architecture, kind_of
    from tfcli.hub.fields import Asked

    asked = Asked(said, "config.json")
    arch = architecture(said["model_type"])
    settings = arch.read(kind_of(arch, asked), asked)
    settings.pop("objective", None), settings.pop("objective.start", None)
    return same_nodes(
        compose("train", [override(k, v) for k, v in settings.items()]), compose("train", overrides)
    )

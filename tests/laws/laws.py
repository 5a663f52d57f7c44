"""What every model obeys, whatever its parts: each law is a function of a model that raises AssertionError.

They know no variant by name, and of a family only its facts: whether it decodes, and whether it reads a
source. `tests/laws/test_laws.py` applies them to the choices in configs/.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from laws.cases import VOCAB, ids
from torch import Tensor, nn

from tfcli.batch import IGNORE, PAD, Batch, pad
from tfcli.loss import cross_entropy_sum

NEAR = 1e-4  # fp32 logits of size 1 to 10
SOURCE = 6  # tokens of a source, where nothing else is said


def near(a: Tensor, b: Tensor, what: str, tolerance: float = NEAR) -> None:
    assert torch.isfinite(a).all(), f"{what}: not finite"
    off = (a - b).abs().max().item()
    assert off < tolerance, f"{what}: off by {off:.2e}"


# --- what models of different families are handed -----------------------------------------------------------


def reads_source(model: nn.Module) -> bool:
    return model.family == "encoder_decoder"


def decodes(model: nn.Module) -> bool:
    return model.family != "encoder"


def sources(rows: Sequence[int]) -> Tensor:
    """The source of each of these rows: (len(rows), SOURCE)."""
    return torch.cat([ids(1, SOURCE, seed=50 + row) for row in rows])


def batch(model: nn.Module, tokens: Tensor, rows: Sequence[int] | None = None, **more: Tensor) -> Batch:
    """The tokens as a batch, with the sources of these rows (None: 0, 1, 2 ...) where the model reads any."""
    if reads_source(model):
        more["source"] = sources(range(len(tokens)) if rows is None else rows)
    return Batch(tokens, **more)


def begin(model: nn.Module, rows: Sequence[int]) -> object:
    """The state in which decoding of these rows begins."""
    return model.begin(sources(rows)) if reads_source(model) else model.begin()


def some_labels(logits: Tensor) -> Tensor:
    """A label for everything that is scored."""
    generator = torch.Generator().manual_seed(9)
    return torch.randint(0, logits.shape[-1], logits.shape[:-1], generator=generator)


def of_row(logits: Tensor, places: slice) -> Tensor:
    """One row's scores without those of padding: of tokens (T, V), of a class (C,), of a span (2, T)."""
    if logits.ndim == 1:
        return logits
    return logits[:, places] if logits.shape[0] == 2 and logits.shape[1] >= places.stop else logits[places]


# --- decoding -----------------------------------------------------------------------------------------------


def reading(model: nn.Module, tokens: Tensor, cuts: list[int], rows: Sequence[int] | None = None) -> Tensor:
    """Logits of a text that is read in pieces of those lengths."""
    state, parts, start = begin(model, range(len(tokens)) if rows is None else rows), [], 0
    for length in cuts:
        parts.append(model.step(tokens[:, start : start + length], state))
        start += length
    return torch.cat(parts, dim=1)


@torch.no_grad()
def cached_equals_one_pass(model: nn.Module, length: int = 14) -> None:
    """1: decoding step by step says at every step what one pass over the text so far says, however it was
    cut.
    """
    tokens = ids(2, length)
    grows = model.stack.stable_until is not None
    if grows:  # all depends on how long the text is: compare with the pass over that length
        each = [model(batch(model, tokens[:, :n]))[:, -1] for n in range(1, length + 1)]
        whole = torch.stack(each, dim=1)
    else:
        whole = model(batch(model, tokens))
    for cuts in ([1] * length, [length - 1, 1], [9] + [1] * (length - 9), [3] * (length // 3) + [length % 3]):
        ends = torch.tensor(cuts).cumsum(0) - 1 if grows else torch.arange(length)
        for rows in (2, 1):  # a single row may go a shorter way
            said = reading(model, tokens[:rows], cuts)
            near(said[:, ends], whole[:rows, ends], f"{rows} rows cut {cuts}")


@torch.no_grad()
def a_prefix_is_read_as_in_one_pass(model: nn.Module) -> None:
    """1 for a prefix, whose tokens see each other: also of ragged rows, and going on from it."""
    tokens, n = ids(2, 12), 5
    if model.family != "decoder" or model.stack.stable_until is not None:
        return
    whole = model(Batch(tokens, horizon=torch.full((2, 1), n - 1)))
    for rows in (2, 1):
        state = model.begin(prefix=True)
        said = [model.step(tokens[:rows, :n], state)]
        said += [model.step(tokens[:rows, i : i + 1], state) for i in range(n, 12)]
        near(torch.cat(said, 1), whole[:rows], f"{rows} rows with a prefix")
    changed = tokens.clone()
    changed[:, n - 1] = (changed[:, n - 1] + 1) % VOCAB
    moved = model(Batch(changed, horizon=torch.full((2, 1), n - 1)))
    assert not torch.equal(moved[:, n - 2], whole[:, n - 2]), "a prefix does not see its own end"


@torch.no_grad()
def reordered_rows_go_on_as_what_they_became(model: nn.Module) -> None:
    """1 with samples and beams: a state whose rows were repeated and left out goes on as those rows would."""
    tokens, follow = ids(3, 8), ids(4, 3, seed=7)
    state = begin(model, range(3))
    model.step(tokens, state)
    was = [0, 1, 2]
    for rows in ([2, 0, 2, 2], [1, 0, 3, 3], [0, 1, 3, 2]):
        rows_then = [was[row] for row in rows]
        state.reorder(torch.tensor(rows))
        was = rows_then
    said = torch.cat([model.step(follow[:, i : i + 1], state) for i in range(3)], dim=1)
    whole = torch.cat((tokens[torch.tensor(was)], follow), 1)
    near(said, reading(model, whole, [8, 1, 1, 1], was)[:, 8:], "reordered")


@torch.no_grad()
def a_row_says_the_same_alone_and_in_company(model: nn.Module) -> None:
    """4: also when rows of unequal length are decoded together, whichever side is padded."""
    lengths, width, more = (9, 4, 1), 9, 4
    rows = [ids(1, n, seed=10 + n)[0] for n in lengths]
    follow = ids(3, more, seed=6)
    for side in ("left", "right"):
        tokens, present = torch.zeros(3, width, dtype=torch.long), torch.zeros(3, width, dtype=torch.bool)
        for i, row in enumerate(rows):
            place = slice(width - len(row), None) if side == "left" else slice(0, len(row))
            tokens[i, place], present[i, place] = row, True
        state = begin(model, range(3))
        said = [model.step(tokens, state, present)] + [
            model.step(follow[:, i : i + 1], state) for i in range(more)
        ]
        for i, row in enumerate(rows):
            own = begin(model, [i])
            alone = [model.step(row[None], own)] + [
                model.step(follow[i : i + 1, j : j + 1], own) for j in range(more)
            ]
            near(said[0][i][present[i]], alone[0][0], f"prompt {i}, padded {side}")
            for j in range(1, more + 1):
                near(said[j][i], alone[j][0], f"row {i}, padded {side}, step {j}")


# --- who sees whom ------------------------------------------------------------------------------------------


@torch.no_grad()
def future_is_invisible(model: nn.Module, length: int = 12) -> None:
    """2: a changed token moves nothing before it, and something at or after it."""
    tokens = ids(1, length)
    before = model(batch(model, tokens))
    for at in (1, 5, length - 1):
        changed = tokens.clone()
        changed[0, at] = (changed[0, at] + 1) % VOCAB
        after = model(batch(model, changed))
        assert torch.equal(after[:, :at], before[:, :at]) or (after - before)[:, :at].abs().max() < 1e-6, at
        assert not torch.equal(after[:, at], before[:, at]), f"token {at} does not matter at its own place"


@torch.no_grad()
def both_sides_are_seen(model: nn.Module, length: int = 8) -> None:
    """2 for an encoder: a neighbour on either side moves what is said."""
    tokens = ids(1, length)
    before = model(Batch(tokens))
    for at in (3, 5):
        changed = tokens.clone()
        changed[0, at] = (changed[0, at] + 1) % VOCAB
        off = (model(Batch(changed)) - before).abs()
        if model.head.says in ("tokens", "tags"):
            off = off[0, 4]
        assert off.max() > 0, f"token {at} is not seen from place 4"


@torch.no_grad()
def the_source_is_seen_from_everywhere(model: nn.Module) -> None:
    """2 for an encoder-decoder: any token of the source moves what is said at every place of the target."""
    tokens, source = ids(1, 6), sources([0])
    before = model(Batch(tokens, source=source))
    for at in (0, SOURCE - 1):
        changed = source.clone()
        changed[0, at] = (changed[0, at] + 1) % VOCAB
        off = (model(Batch(tokens, source=changed)) - before).abs().amax(-1)
        assert bool((off > 0).all()), f"token {at} of the source is not seen"


@torch.no_grad()
def documents_in_a_row_are_strangers(model: nn.Module) -> None:
    """2: packed documents say what each says alone."""
    if reads_source(model) or model.head.says not in ("tokens", "tags"):
        return
    first, second = ids(1, 5, seed=2), ids(1, 7, seed=3)
    positions = torch.cat((torch.arange(5), torch.arange(7)))[None]
    documents = torch.tensor([[0] * 5 + [1] * 7])
    packed = model(Batch(torch.cat((first, second), 1), positions=positions, documents=documents))
    near(packed[:, :5], model(Batch(first)), "first document")
    near(packed[:, 5:], model(Batch(second)), "second document")


# --- padding ------------------------------------------------------------------------------------------------


def padded(row: Tensor, left: int, right: int, content: int) -> tuple[Tensor, Tensor]:
    """A row (n,) with padding on both sides, and its positions."""
    n = len(row)
    tokens = torch.full((left + n + right,), content)
    positions = torch.full((left + n + right,), PAD)
    tokens[left : left + n], positions[left : left + n] = row, torch.arange(n)
    return tokens, positions


def scored(model: nn.Module, this: Batch, labels: Tensor, places: slice) -> tuple[Tensor, ...]:
    """Of the first row: its scores at those places, the loss, and all gradients as one vector."""
    logits = model(this)
    assert torch.isfinite(logits).all(), "padding gives a logit that is not finite"
    said = of_row(logits[0], places)
    loss = cross_entropy_sum(said[None], labels[None])
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    gradient = torch.cat([g.flatten() for g in gradients if g is not None])
    return said.detach(), loss.detach(), gradient


def padding_changes_nothing(model: nn.Module) -> None:
    """3: content, amount and side of padding move no real token's logits, loss or gradient."""
    n, total = 7, 12
    row = ids(1, n, seed=4)[0]
    plain = of_row(model(batch(model, row[None]))[0].detach(), slice(0, n))
    labels = some_labels(plain)
    seen = []
    for left, content in ((0, 3), (5, 3), (2, 9), (5, 11)):
        tokens, positions = padded(row, left, total - n - left, content)
        # a second row of padding alone must not hurt either
        both = torch.stack((positions, torch.full((total,), PAD)))
        this = batch(model, torch.stack((tokens, tokens)), positions=both)
        seen.append(scored(model, this, labels, slice(left, left + n)))
    same(seen)
    near(seen[0][0], plain, "logits without padding")


def same(seen: list[tuple[Tensor, ...]]) -> None:
    for logits, loss, gradient in seen[1:]:
        near(logits, seen[0][0], "logits under other padding")
        near(loss, seen[0][1], "loss under other padding")
        near(gradient, seen[0][2], "gradient under other padding", 1e-3)


def padding_of_a_source_changes_nothing(model: nn.Module) -> None:
    """3 for ragged sources, an empty one among them."""
    tokens = ids(1, 5)
    for n in (4, 0):
        row, seen = ids(1, n, seed=4)[0], []
        for left, right, content in ((0, 3, 3), (3, 0, 3), (1, 6, 9), (5, 2, 11)):
            source, positions = padded(row, left, right, content)
            company = torch.full_like(source, 2), torch.arange(len(source))
            this = Batch(
                tokens.repeat(2, 1),
                source=torch.stack((source, company[0])),
                source_positions=torch.stack((positions, company[1])),
            )
            seen.append(scored(model, this, ids(1, 5, seed=5)[0], slice(0, 5)))
        same(seen)
        if n:
            near(seen[0][0], model(Batch(tokens, source=row[None]))[0].detach(), "source without padding")


@torch.no_grad()
def ragged_rows_say_what_each_says_alone(model: nn.Module) -> None:
    """4 in one pass, both texts ragged, and one row of padding alone."""
    rows = [ids(1, n, seed=10 + n)[0] for n in (9, 4, 1, 0)]
    others = [ids(1, n, seed=30 + n)[0] for n in (2, 0, 7, 3)]
    positions = pad([torch.arange(len(row)) for row in rows], PAD)
    more = {}
    if reads_source(model):
        more["source"] = pad(others, 0)
        more["source_positions"] = pad([torch.arange(len(row)) for row in others], PAD)
    together = model(Batch(pad(rows, 0), positions=positions, **more))
    assert torch.isfinite(together).all()
    for i, row in enumerate(rows):
        if len(row) and (len(others[i]) or not reads_source(model)):
            alone = Batch(row[None], source=others[i][None] if reads_source(model) else None)
            near(of_row(together[i], slice(0, len(row))), model(alone)[0], f"row {i}")


# --- learning -----------------------------------------------------------------------------------------------


def gradients_reach_every_parameter(model: nn.Module) -> None:
    """5: none is left out, and none is stuck at zero."""
    model.zero_grad()
    logits = model(batch(model, ids(3, 20, seed=8)))
    cross_entropy_sum(logits, some_labels(logits)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name}: no gradient"
        assert torch.isfinite(parameter.grad).all(), f"{name}: not finite"
        assert parameter.grad.abs().sum() > 0, f"{name}: gradient zero"


def one_batch_is_learned_by_heart(model: nn.Module, steps: int = 150) -> None:
    """6: the loss on one small batch falls to almost nothing."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.stack([torch.randperm(VOCAB, generator=generator)[:10] for _ in range(2)])
    this = batch(model, tokens[:, :-1])
    model.train()
    labels = tokens[:, 1:] if decodes(model) else some_labels(model(this))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = cross_entropy_sum(model(this), labels) / labels.numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.item() < 0.25, f"loss {loss.item():.3f} after {steps} steps"


def kernels_agree(model: nn.Module, eager: nn.Module) -> None:
    """10: eager and the kernels that torch picks give the same logits and gradients, padded and not."""
    tokens = ids(2, 12)
    positions = torch.stack((torch.arange(12), torch.cat((torch.full((4,), PAD), torch.arange(8)))))
    for this in (batch(model, tokens), batch(model, tokens, positions=positions)):
        real = torch.ones_like(tokens, dtype=torch.bool) if this.positions is None else positions != PAD
        if reads_source(model) and this.positions is not None:  # an empty source, too
            this.source_positions = torch.stack((torch.arange(SOURCE), torch.full((SOURCE,), PAD)))
        results = []
        for one in (model, eager):
            one.zero_grad()
            logits = one(this)
            by_token = logits.shape[:2] == tokens.shape
            labels = some_labels(logits)
            labels = labels.masked_fill(~real, IGNORE) if by_token else labels * 0 + 8
            labels = labels.clamp(max=logits.shape[-1] - 1)
            cross_entropy_sum(logits, labels).backward()
            kept = logits.detach()[real] if by_token else logits.detach()
            results.append((kept, torch.cat([p.grad.flatten() for p in one.parameters()])))
        near(results[0][0], results[1][0], "logits")
        # of their size: a norm of a small branch magnifies rounding a hundredfold
        near(results[0][1], results[1][1], "gradients", 1e-3 * max(1.0, results[0][1].abs().max().item()))

"""What every model obeys, whatever its parts: each law is a function of a model that raises AssertionError.

They know no variant by name. `tests/laws/test_laws.py` applies them to the choices in configs/.
"""

from __future__ import annotations

import torch
from laws.cases import VOCAB, ids
from torch import Tensor, nn

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.loss import cross_entropy_sum

NEAR = 1e-4  # fp32 logits of size 1 to 10


def near(a: Tensor, b: Tensor, what: str, tolerance: float = NEAR) -> None:
    assert torch.isfinite(a).all(), f"{what}: not finite"
    off = (a - b).abs().max().item()
    assert off < tolerance, f"{what}: off by {off:.2e}"


def reading(model: nn.Module, tokens: Tensor, cuts: list[int]) -> Tensor:
    """Logits of a text that is read in pieces of those lengths."""
    state, parts, start = model.begin(), [], 0
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
        whole = torch.stack([model(Batch(tokens[:, :n]))[:, -1] for n in range(1, length + 1)], dim=1)
    else:
        whole = model(Batch(tokens))
    for cuts in ([1] * length, [length - 1, 1], [9] + [1] * (length - 9), [3] * (length // 3) + [length % 3]):
        ends = torch.tensor(cuts).cumsum(0) - 1 if grows else torch.arange(length)
        for rows in (2, 1):  # a single row may go a shorter way
            said = reading(model, tokens[:rows], cuts)
            near(said[:, ends], whole[:rows, ends], f"{rows} rows cut {cuts}")


@torch.no_grad()
def future_is_invisible(model: nn.Module, length: int = 12) -> None:
    """2: a changed token moves nothing before it, and something at or after it."""
    tokens = ids(1, length)
    before = model(Batch(tokens))
    for at in (1, 5, length - 1):
        changed = tokens.clone()
        changed[0, at] = (changed[0, at] + 1) % VOCAB
        after = model(Batch(changed))
        assert torch.equal(after[:, :at], before[:, :at]) or (after - before)[:, :at].abs().max() < 1e-6, at
        assert not torch.equal(after[:, at], before[:, at]), f"token {at} does not matter at its own place"


@torch.no_grad()
def documents_in_a_row_are_strangers(model: nn.Module) -> None:
    """2: packed documents say what each says alone, and the first may change without moving the second."""
    first, second = ids(1, 5, seed=2), ids(1, 7, seed=3)
    positions = torch.cat((torch.arange(5), torch.arange(7)))[None]
    documents = torch.tensor([[0] * 5 + [1] * 7])
    packed = model(Batch(torch.cat((first, second), 1), positions=positions, documents=documents))
    near(packed[:, :5], model(Batch(first)), "first document")
    near(packed[:, 5:], model(Batch(second)), "second document")


def padded(row: Tensor, left: int, right: int, content: int) -> tuple[Tensor, Tensor]:
    """A row (n,) with padding on both sides, and its positions."""
    n = len(row)
    tokens = torch.full((left + n + right,), content)
    positions = torch.full((left + n + right,), PAD)
    tokens[left : left + n], positions[left : left + n] = row, torch.arange(n)
    return tokens, positions


def padding_changes_nothing(model: nn.Module) -> None:
    """3: content, amount and side of padding move no real token's logits, loss or gradient."""
    n, total = 7, 12
    row = ids(1, n, seed=4)[0]
    labels = ids(1, n, seed=5)[0]
    seen = []
    for left, content in ((0, 3), (5, 3), (2, 9), (5, 11)):
        tokens, positions = padded(row, left, total - n - left, content)
        target = torch.full((total,), IGNORE)
        target[left : left + n] = labels
        # a second row of padding alone must not hurt either
        batch = Batch(
            torch.stack((tokens, tokens)), positions=torch.stack((positions, torch.full((total,), PAD)))
        )
        logits = model(batch)
        assert torch.isfinite(logits).all(), "padding gives a logit that is not finite"
        loss = cross_entropy_sum(logits[0], target)
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        gradient = torch.cat([g.flatten() for g in gradients if g is not None])
        seen.append((logits[0, left : left + n].detach(), loss.detach(), gradient))
    for logits, loss, gradient in seen[1:]:
        near(logits, seen[0][0], "logits under other padding")
        near(loss, seen[0][1], "loss under other padding")
        near(gradient, seen[0][2], "gradient under other padding", 1e-3)
    near(seen[0][0], model(Batch(row[None]))[0].detach(), "logits without padding")


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
        state = model.begin()
        said = [model.step(tokens, state, present)] + [
            model.step(follow[:, i : i + 1], state) for i in range(more)
        ]
        for i, row in enumerate(rows):
            own = model.begin()
            alone = [model.step(row[None], own)] + [
                model.step(follow[i : i + 1, j : j + 1], own) for j in range(more)
            ]
            near(said[0][i][present[i]], alone[0][0], f"prompt {i}, padded {side}")
            for j in range(1, more + 1):
                near(said[j][i], alone[j][0], f"row {i}, padded {side}, step {j}")


@torch.no_grad()
def reordered_rows_go_on_as_what_they_became(model: nn.Module) -> None:
    """1 with samples and beams: a state whose rows were repeated and left out goes on as those rows would."""
    tokens, follow = ids(3, 8), ids(4, 3, seed=7)
    rows = torch.tensor([2, 0, 2, 2])
    state = model.begin()
    model.step(tokens, state)
    state.reorder(rows)
    said = torch.cat([model.step(follow[:, i : i + 1], state) for i in range(3)], dim=1)
    whole = model.begin()
    near(said, reading(model, torch.cat((tokens[rows], follow), 1), [8, 1, 1, 1])[:, 8:], "reordered")
    assert whole is not state


def gradients_reach_every_parameter(model: nn.Module) -> None:
    """5: none is left out, and none is stuck at zero."""
    tokens = ids(3, 20, seed=8)
    model.zero_grad()
    cross_entropy_sum(model(Batch(tokens)), ids(3, 20, seed=9)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name}: no gradient"
        assert torch.isfinite(parameter.grad).all(), f"{name}: not finite"
        assert parameter.grad.abs().sum() > 0, f"{name}: gradient zero"


def one_batch_is_learned_by_heart(model: nn.Module, steps: int = 150) -> None:
    """6: the loss on one small batch falls to almost nothing."""
    tokens = ids(2, 10, seed=11)
    batch, labels = Batch(tokens[:, :-1]), tokens[:, 1:]
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = cross_entropy_sum(model(batch), labels) / labels.numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.item() < 0.25, f"loss {loss.item():.3f} after {steps} steps"


def kernels_agree(model: nn.Module, eager: nn.Module) -> None:
    """10: eager and the kernels that torch picks give the same logits and gradients, padded and not."""
    tokens = ids(2, 12)
    positions = torch.stack((torch.arange(12), torch.cat((torch.full((4,), PAD), torch.arange(8)))))
    labels = ids(2, 12, seed=5).masked_fill(positions == PAD, IGNORE)
    for batch in (Batch(tokens), Batch(tokens, positions=positions)):
        results = []
        for one in (model, eager):
            one.zero_grad()
            logits = one(batch)
            cross_entropy_sum(logits, labels).backward()
            real = (
                positions != PAD if batch.positions is not None else torch.ones_like(tokens, dtype=torch.bool)
            )
            results.append((logits.detach()[real], torch.cat([p.grad.flatten() for p in one.parameters()])))
        near(results[0][0], results[1][0], "logits")
        near(results[0][1], results[1][1], "gradients", 1e-3)

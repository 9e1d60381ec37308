"""A small transformer in torch: rotary attention, squared ReLU, tied table, Muon and AdamW, int8 weights.

Everything here may be changed but for what `train` and `predict` take and give.
"""

from __future__ import annotations

import io
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS = 9  # search: 4..16
WIDTH = 512  # search: 256..1024
HEADS = 8
EXPAND = 2  # search: 1..4
LENGTH = 1024
BATCH = 512 * 1024
MICRO = 32
SECONDS = 520.0  # of training; the rest is for starting, packing and looking
MUON_RATE = 0.03  # search: 0.003..0.1 log
ADAM_RATE = 0.02  # search: 0.0003..0.03 log
WARM_DOWN = 0.4  # search: 0.1..0.9
MOMENTUM = 0.95
CAP = 30.0


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, turn):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k = (rotated(norm(each), turn) for each in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.up = nn.Linear(WIDTH, EXPAND * WIDTH, bias=False)
        self.down = nn.Linear(EXPAND * WIDTH, WIDTH, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x, turn):
        x = x + self.attention(norm(x), turn)
        return x + self.down(F.relu(self.up(norm(x))).square())


class Model(nn.Module):
    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, WIDTH)
        nn.init.normal_(self.table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens, last: bool = False):
        length = tokens.shape[1]
        speeds = 10000 ** (-torch.arange(0, WIDTH // HEADS, 2, device=tokens.device) / (WIDTH // HEADS))
        angles = torch.arange(length, device=tokens.device)[:, None] * speeds
        turn = (angles.cos().to(self.table.weight.dtype), angles.sin().to(self.table.weight.dtype))
        x = norm(self.table(tokens))
        for block in self.blocks:
            x = block(x, turn)
        x = norm(x[:, -1:] if last else x)
        return CAP * torch.tanh(F.linear(x, self.table.weight).float() / CAP)


def norm(x):
    return F.rms_norm(x, (x.shape[-1],))


def rotated(x, turn):
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made orthogonal by five turns of a Newton-Schulz iteration."""

    def __init__(self, params, lr: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["momentum"])
                step = orthogonal(weight.grad.lerp(mean, group["momentum"]))
                weight.add_(step, alpha=-group["lr"] * max(1, weight.shape[0] / weight.shape[1]) ** 0.5)


def orthogonal(step):
    x = step.bfloat16() if step.is_cuda else step
    x = x.T if step.shape[0] > step.shape[1] else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.T if step.shape[0] > step.shape[1] else x).to(step.dtype)


def batches(data, rank: int, ranks: int, device, seed: int):
    """Pieces of the shards without end, each rank its own."""
    shards = sorted(data.glob("*.bin"))
    number, chance = rank, torch.Generator().manual_seed(seed)
    while True:
        shard = shards[number // ranks % len(shards)]
        tokens = torch.from_file(str(shard), size=shard.stat().st_size // 2, dtype=torch.uint16)
        tokens = tokens[512:] if tokens[:2].tolist() == [0xD888, 0x0134] else tokens
        pieces = (len(tokens) - 1) // LENGTH
        order = torch.randperm(pieces, generator=chance)[rank::ranks]
        for each in order.split(MICRO):
            rows = torch.stack([tokens[at * LENGTH : at * LENGTH + LENGTH + 1] for at in each.tolist()])
            rows = rows.to(torch.int64).to(device, non_blocking=True)
            yield rows[:, :-1], rows[:, 1:]
        number += ranks


def train(data, vocab: int, seed: int) -> bytes:
    began = time.monotonic()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu")
    if ranks > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(seed)
    model = Model(vocab).to(device)
    matrices = [each for each in model.blocks.parameters() if each.ndim == 2]
    optimizers = [
        Muon(matrices, MUON_RATE, MOMENTUM),
        torch.optim.AdamW(model.table.parameters(), ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    rates = [group["lr"] for each in optimizers for group in each.param_groups]
    called = torch.compile(model) if cuda else model
    source, steps = batches(data, rank, ranks, device, seed), max(1, BATCH // (ranks * MICRO * LENGTH))
    while True:
        spent = torch.tensor((time.monotonic() - began) / SECONDS, device=device)
        if ranks > 1:
            dist.all_reduce(spent, dist.ReduceOp.MAX)
        if spent >= 1:
            break
        for _ in range(steps):
            tokens, targets = next(source)
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                scores = called(tokens)
            (F.cross_entropy(scores.flatten(0, 1), targets.flatten()) / steps).backward()
        for weight in model.parameters():
            if ranks > 1:
                dist.all_reduce(weight.grad, dist.ReduceOp.SUM)
                weight.grad /= ranks
        left = min(1.0, (1 - float(spent)) / WARM_DOWN)
        groups = [group for each in optimizers for group in each.param_groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * left
        for each in optimizers:
            each.step()
            each.zero_grad(set_to_none=True)
    if ranks > 1:
        dist.destroy_process_group()
    return packed(model.state_dict())


def packed(state) -> bytes:
    """Eight bits for each weight, with a scale for each row."""
    kept = {}
    for name, weight in state.items():
        rows = weight.float().cpu()
        scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127
        kept[name] = ((rows / scale).round().to(torch.int8), scale.half())
    file = io.BytesIO()
    torch.save(kept, file)
    return file.getvalue()


def predict(weights: bytes, contexts):
    kept = torch.load(io.BytesIO(weights), weights_only=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Model(len(kept["table.weight"][0]))
    model.load_state_dict({name: rows.float() * scale.float() for name, (rows, scale) in kept.items()})
    model.to(device).eval()
    waiting = [torch.frombuffer(bytearray(each), dtype=torch.uint16) for each in contexts]
    with torch.no_grad():
        for start in range(0, len(waiting), MICRO):
            tokens = torch.stack(waiting[start : start + MICRO]).to(torch.int64).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = model(tokens, last=True)
            yield from (row.tolist() for row in scores[:, -1].float().cpu())

"""A small residual-free convolutional network in torch: whitened input, three stages, smoothed labels, mirrored looks.

Everything here may be changed but for what `predict` takes and gives.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS = (128, 384, 512)
EPOCHS = 42.0  # search: 20..60
BATCH = 1024  # search: 256..2048
RATE = 9.0  # search: 2..20 log
MOMENTUM = 0.85  # search: 0.5..0.95
WEIGHT_DECAY = 0.012  # search: 0.001..0.1 log
SMOOTHING = 0.2  # search: 0.0..0.4
WARM_UP = 0.1  # search: 0.0..0.3
SHIFT = 4
CUT = 12
SCALE = 1 / 9


class Stage(nn.Module):
    def __init__(self, before: int, width: int, layers: int) -> None:
        super().__init__()
        sizes = [before] + [width] * layers
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, momentum=0.4) for _ in range(layers))

    def forward(self, x):
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = conv(x)
            x = F.gelu(norm(F.max_pool2d(x, 2) if number == 0 else x))
        return x


class Network(nn.Module):
    def __init__(self, sample) -> None:
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        pieces = F.unfold(sample, 2).transpose(1, 2).reshape(-1, 12).double()
        pieces = pieces - pieces.mean(0)
        values, vectors = torch.linalg.eigh(pieces.T @ pieces / len(pieces))
        filters = (vectors / (values + 5e-4).sqrt()).T.reshape(12, 3, 2, 2).float()
        self.whiten.weight.data = torch.cat((filters, -filters))
        self.whiten.weight.requires_grad_(False)
        sizes = (24, *WIDTHS)
        self.stages = nn.Sequential(*(Stage(sizes[at], sizes[at + 1], 2 + (at > 0)) for at in range(3)))
        self.head = nn.Linear(WIDTHS[-1], 10, bias=False)

    def forward(self, x):
        x = self.stages(F.gelu(self.whiten(x)))
        return self.head(x.amax((2, 3))) * SCALE


def augmented(images):
    """Mirrored by chance, shifted by up to SHIFT pixels, with a square cut out."""
    count, _, height, width = images.shape
    device = images.device
    mirrored = torch.rand(count, 1, 1, 1, device=device) < 0.5
    images = torch.where(mirrored, images.flip(-1), images)
    padded = F.pad(images, (SHIFT,) * 4, mode="reflect")
    down, right = torch.randint(0, 2 * SHIFT + 1, (2, count, 1), device=device)
    rows = (down + torch.arange(height, device=device))[:, None, :, None]
    columns = (right + torch.arange(width, device=device))[:, None, None, :]
    at = torch.arange(count, device=device)[:, None, None, None]
    images = padded[at, torch.arange(3, device=device)[None, :, None, None], rows, columns]
    top, left = (torch.randint(-CUT // 2, size, (count, 1), device=device) for size in (height, width))
    in_rows = (torch.arange(height, device=device) - top).clamp(-1, CUT) % (CUT + 1)
    in_columns = (torch.arange(width, device=device) - left).clamp(-1, CUT) % (CUT + 1)
    cut = (in_rows < CUT)[:, None, :, None] & (in_columns < CUT)[:, None, None, :]
    return images.masked_fill(cut, 0)


def predict(train_images, train_labels, test_images, seed: int):
    torch.manual_seed(seed)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    kind = torch.float16 if cuda else torch.float32
    images = torch.from_numpy(train_images).to(device).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(train_labels).to(device).long()
    mean, spread = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    images = (images - mean) / spread
    unknown = (torch.from_numpy(test_images).to(device).permute(0, 3, 1, 2).float() / 255 - mean) / spread
    network = Network(images[:5000]).to(device, kind, memory_format=torch.channels_last)
    for each in network.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.float()
    steps = int(EPOCHS * len(images) / BATCH)
    weights = [each for each in network.parameters() if each.requires_grad]
    unit = 1 / (1024 * (1 + 1 / (1 - MOMENTUM)))
    optimizer = torch.optim.SGD(
        weights, RATE * unit, MOMENTUM, weight_decay=WEIGHT_DECAY * BATCH / RATE, nesterov=True
    )
    network.train()
    for step in range(steps):
        rate = min(step / max(1.0, WARM_UP * steps), (steps - step) / max(1.0, (1 - WARM_UP) * steps))
        optimizer.param_groups[0]["lr"] = max(rate, 0.02) * RATE * unit
        if step % max(1, len(images) // BATCH) == 0:
            order = torch.randperm(len(images), device=device)
        picked = order[step % max(1, len(images) // BATCH) * BATCH :][:BATCH]
        batch = augmented(images[picked]).to(kind, memory_format=torch.channels_last)
        loss = F.cross_entropy(
            network(batch).float(), labels[picked], label_smoothing=SMOOTHING, reduction="sum"
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        looks = []
        for batch in unknown.split(2000):
            batch = batch.to(kind, memory_format=torch.channels_last)
            looks.append(network(batch).float() + network(batch.flip(-1)).float())
    return torch.cat(looks).argmax(1).cpu().numpy()

"""A small character model trained by iterations: batches are drawn by index, and there is no DataLoader."""

import math

import torch
from torch import nn
from torch.nn import functional

BLOCK, BATCH, WIDTH, CHARACTERS = 64, 24, 96, 60
EPOCHS, STEPS_PER_EPOCH, EVALUATE_EVERY, EVALUATIONS = 1, 700, 100, 8

torch.manual_seed(1337)
text = torch.randint(CHARACTERS, (60_000,))
parts = {"train": text[:54_000], "val": text[54_000:]}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.grow = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                                                  nn.Linear(4 * WIDTH, WIDTH))  # fmt: skip

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.grow(x)


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.layers, self.head = nn.Sequential(Attention(), Attention()), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, x, y):
        h = self.layers(self.tokens(x) + self.places(torch.arange(x.shape[1])))
        return functional.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


def draw(part):
    data = parts[part]
    starts = torch.randint(len(data) - BLOCK, (BATCH,))
    return (torch.stack([data[i : i + BLOCK] for i in starts]),
            torch.stack([data[i + 1 : i + BLOCK + 1] for i in starts]))  # fmt: skip


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    losses = {part: sum(model(*draw(part)).item() for _ in range(EVALUATIONS)) / EVALUATIONS for part in parts}
    model.train()
    return losses


model = Characters()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for iteration in range(STEPS_PER_EPOCH):
    rate = 1e-3 * 0.5 * (1 + math.cos(math.pi * iteration / STEPS_PER_EPOCH))
    for group in optimizer.param_groups:
        group["lr"] = rate
    if iteration % EVALUATE_EVERY == 0:
        losses = estimate_loss(model)
        print(f"iteration {iteration}: train {losses['train']:.3f}, val {losses['val']:.3f}")
    loss = model(*draw("train"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("done")

"""Plain torch: data that come as a stream without a known length."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

EPOCHS, STEPS_PER_EPOCH = 10, 1000


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(2)
        for _ in range(STEPS_PER_EPOCH * 32):
            x = torch.randn(64, generator=generator)
            yield x, x.square().mean()


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(EPOCHS):
    for x, y in DataLoader(Stream(), batch_size=32):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
    torch.save(model.state_dict(), f"stream-{epoch}.pt")

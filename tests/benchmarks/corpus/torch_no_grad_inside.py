"""Gradients are turned off inside the loop over the validation data, batch by batch: plain torch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12

torch.manual_seed(24)
x, y = torch.rand(7_200, 1, 20, 20), torch.randint(10, (7_200,))
train_loader = DataLoader(TensorDataset(x[:6_000], y[:6_000]), batch_size=40, shuffle=True)
test_loader = DataLoader(TensorDataset(x[6_000:], y[6_000:]), batch_size=40)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16 * 16, 10)
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(EPOCHS):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    for images, labels in test_loader:
        with torch.no_grad():
            correct += (model(images).argmax(1) == labels).sum().item()
    print(f"epoch {epoch}: {loss.item():.3f}, {correct / 1_200:.1%}")

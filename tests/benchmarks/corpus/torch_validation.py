"""Plain torch: training, validation, the best weights saved, a schedule for the learning rate."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6

torch.manual_seed(0)
x, y = torch.randn(12000, 1, 28, 28), torch.randint(0, 10, (12000,))
train = DataLoader(TensorDataset(x[:10500], y[:10500]), batch_size=50, shuffle=True)
test = DataLoader(TensorDataset(x[10500:], y[10500:]), batch_size=100)
model = nn.Sequential(
    nn.Conv2d(1, 24, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(24, 32, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 121, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
loss_of = nn.CrossEntropyLoss()
best = float("inf")

for epoch in range(EPOCHS):
    model.train()
    for images, labels in train:
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        missed = sum(loss_of(model(images), labels).item() for images, labels in test) / len(test)
    print(f"epoch {epoch}: loss {loss.item():.4f}, validation {missed:.4f}")
    if missed < best:
        best = missed
        torch.save({"epoch": epoch, "weights": model.state_dict()}, "best.pt")

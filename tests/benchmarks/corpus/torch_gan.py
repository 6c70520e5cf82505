"""Plain torch: two networks and two optimizers that take turns in every batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 14

torch.manual_seed(3)
real_data = DataLoader(TensorDataset(torch.rand(16000, 144)), batch_size=32, shuffle=True)
maker = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 144), nn.Sigmoid())
judge = nn.Sequential(nn.Linear(144, 256), nn.LeakyReLU(0.2), nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
maker_steps = torch.optim.Adam(maker.parameters(), lr=2e-4)
judge_steps = torch.optim.Adam(judge.parameters(), lr=2e-4)
loss_of = nn.BCEWithLogitsLoss()

for epoch in range(EPOCHS):
    for (real,) in real_data:
        true, false = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = maker(torch.randn(len(real), 16))
        judge_steps.zero_grad()
        judge_loss = loss_of(judge(real), true) + loss_of(judge(fake.detach()), false)
        judge_loss.backward()
        judge_steps.step()
        maker_steps.zero_grad()
        maker_loss = loss_of(judge(fake), true)
        maker_loss.backward()
        maker_steps.step()
    print(epoch, judge_loss.item(), maker_loss.item())
torch.save({"maker": maker.state_dict(), "judge": judge.state_dict()}, "gan.pt")

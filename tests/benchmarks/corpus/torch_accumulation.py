"""Plain torch: gradients of four batches are added up before each step of the optimizer, which is clipped."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, ACCUMULATE = 7, 4


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 300, (count, 32), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(300, 64)
        self.memory = nn.GRU(64, 96, batch_first=True)
        self.guess = nn.Linear(96, 300)

    def forward(self, tokens):
        return self.guess(self.memory(self.words(tokens))[0])


def evaluate(model, loader, loss_of):
    model.eval()
    with torch.inference_mode():
        losses = [loss_of(model(a).flatten(0, 1), b.flatten()).item() for a, b in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(1)
    train = DataLoader(Sentences(5120, 0), batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(Sentences(1280, 1), batch_size=32)
    model, loss_of = Speaker(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(EPOCHS):
        for number, (tokens, following) in enumerate(train, 1):
            loss = loss_of(model(tokens).flatten(0, 1), following.flatten()) / ACCUMULATE
            loss.backward()
            if number % ACCUMULATE == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        print(epoch, evaluate(model, test, loss_of))
    torch.save(model.state_dict(), "speaker.pt")


if __name__ == "__main__":
    main()

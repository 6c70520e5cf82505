"""Lightning: a classifier with validation, checkpoints and its usual log."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(24 * 144, 6)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, number):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(4)
    x, y = torch.rand(15000, 3, 16, 16), torch.randint(0, 6, (15000,))
    train = DataLoader(TensorDataset(x[:13000], y[:13000]), batch_size=32, shuffle=True)
    test = DataLoader(TensorDataset(x[13000:], y[13000:]), batch_size=50)
    saving = L.pytorch.callbacks.ModelCheckpoint("checkpoints", monitor="val_loss", save_last=True)
    trainer = L.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[saving], enable_progress_bar=False)
    trainer.fit(Classifier(), train, test)

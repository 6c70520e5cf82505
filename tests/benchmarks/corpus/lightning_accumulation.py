"""Lightning: accumulated gradients, a log in CSV, validation every second epoch."""

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Forecast(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(6, 64, num_layers=2, batch_first=True)
        self.guess = nn.Linear(64, 6)

    def training_step(self, batch, number):
        (series,) = batch
        loss = nn.functional.mse_loss(self.guess(self.memory(series[:, :-1])[0]), series[:, 1:])
        self.log("loss", loss, on_step=True)
        return loss

    def validation_step(self, batch, number):
        (series,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.guess(self.memory(series[:, :-1])[0]), series[:, 1:]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)]


L.seed_everything(5)
series = torch.randn(11000, 30, 6)
trainer = L.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    accumulate_grad_batches=2,
    check_val_every_n_epoch=2,
    gradient_clip_val=1.0,
    logger=CSVLogger("runs", name="forecast"),
    enable_progress_bar=False,
)
trainer.fit(
    Forecast(),
    DataLoader(TensorDataset(series[:10000]), batch_size=20, shuffle=True),
    DataLoader(TensorDataset(series[10000:]), batch_size=50),
)

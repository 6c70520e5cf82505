"""Hugging Face Trainer: a tiny BERT with random weights, evaluated and saved after every epoch."""

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

EPOCHS = 6


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.tokens, self.labels = rng.integers(5, 800, (count, 48)), rng.integers(0, 2, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "attention_mask": np.ones(48, "int64"), "labels": self.labels[index]}


def measure(predictions):
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


set_seed(6)
config = BertConfig(
    vocab_size=800, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, num_labels=2
)
arguments = TrainingArguments(
    "reviews",
    num_train_epochs=EPOCHS,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    save_total_limit=2,
    logging_steps=20,
    report_to=[],
    use_cpu=True,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=Reviews(2400, 0),
    eval_dataset=Reviews(600, 1),
    compute_metrics=measure,
)
trainer.train()
trainer.save_model("final")

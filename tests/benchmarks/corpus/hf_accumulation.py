"""Hugging Face Trainer: a tiny GPT-2 with random weights that adds up gradients, told in steps instead of epochs."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

STEPS = 800


class Lines(torch.utils.data.Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(0, 600, (count, 40))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


set_seed(7)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=600, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
)
arguments = TrainingArguments(
    "lines",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
Trainer(model, arguments, train_dataset=Lines(800), eval_dataset=Lines(120)).train()

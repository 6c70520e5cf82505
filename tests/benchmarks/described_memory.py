"""How well the memory of a training step is estimated from the description of its model, before any GPU was seen.

The estimates are compared with the buffers that XLA plans for compiled steps of Keras models (on a CPU, see
gpu_memory.py) and with the peak that torch's memory tracker finds on tensors without values::

    python tests/benchmarks/described_memory.py
"""

from __future__ import annotations

import os
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
sys.path.insert(0, str(Path(__file__).parent))

import gpu_memory

import vmselect as vs
from vmselect.prediction.memory import describe_memory

SIZES = (8, 32, 128)


def xla_plans() -> Iterator[tuple[str, int, float, vs.Profile]]:
    import keras

    for name, build in gpu_memory.MODELS.items():
        model = build(keras)
        for size, planned in gpu_memory.measure(name, SIZES)[1].items():
            yield f"XLA {name}", size, planned, vs.describe(model, batch_size=size, optimizer="adam")


def build_torch() -> Mapping[str, tuple[Callable[[], Any], Any]]:
    import transformers
    from torch import nn

    def block(channels: int, filters: int, stride: int = 1) -> Any:
        convolution = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(filters), nn.ReLU())

    def dense() -> Any:
        hidden = [part for width in (784, 1024, 1024, 1024) for part in (nn.Linear(width, 1024), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(1024, 10))

    def convolutional() -> Any:
        narrow, wide = [block(32, 32) for _ in range(4)], [block(64, 64) for _ in range(4)]
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        return nn.Sequential(block(3, 32, 2), *narrow, block(32, 64, 2), *wide, *head)

    gpt2 = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4)
    bert = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024
    )  # fmt: skip
    ids = {"input_ids": (128,)}
    return {
        "dense": (dense, (784,)),
        "convolutional": (convolutional, (3, 64, 64)),
        "GPT-2": (lambda: transformers.GPT2LMHeadModel(gpt2), ids),
        "BERT": (lambda: transformers.BertForMaskedLM(bert), ids),
    }


def torch_peaks() -> Iterator[tuple[str, int, float, vs.Profile]]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    for name, (build, shape) in build_torch().items():
        for size in SIZES:
            profile = vs.describe(build(), batch_size=size, inputs=shape, optimizer="adam")
            with FakeTensorMode():
                module = build()
                optimizer, tracker = torch.optim.Adam(module.parameters(), foreach=False), MemTracker()
                named = isinstance(shape, dict)
                batch = torch.zeros((size, *next(iter(shape.values()))), dtype=torch.int64) if named else torch.zeros(
                    (size, *shape)
                )  # fmt: skip
                tracker.track_external(module, optimizer, batch)
                with tracker:
                    for _ in range(2):
                        tracker.reset_mod_stats()
                        outputs = module(input_ids=batch).logits if named else module(batch)
                        classes = outputs.reshape(-1, outputs.shape[-1])
                        labels = torch.zeros(len(classes), dtype=torch.int64)
                        torch.nn.functional.cross_entropy(classes, labels).backward()
                        optimizer.step()
                        optimizer.zero_grad()
                peak = tracker.get_tracker_snapshot("peak")
            whole = sum(count for parts in peak.values() for part, count in parts.items() if "Total" in str(part))
            yield f"torch {name}", size, float(whole), profile


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for source in (xla_plans, torch_peaks):
        for name, size, peak, profile in source():
            memory = describe_memory(profile)
            assert memory is not None
            estimate = memory.peak(size)
            rows.append((estimate.value / peak, bool(estimate.contains(peak))))
            print(f"{name:20s} {size:4d} {peak / 2**20:9.1f} MiB, estimate {rows[-1][0]:.2f} of it, "
                  f"{'inside' if rows[-1][1] else 'outside'}", flush=True)  # fmt: skip
    errors = [abs(ratio - 1) for ratio, _ in rows]
    inside = sum(contained for _, contained in rows)
    print(
        f"mean error {statistics.fmean(errors):.0%}, median {statistics.median(errors):.0%}, "
        f"inside {inside} of {len(rows)}"
    )


if __name__ == "__main__":
    main()

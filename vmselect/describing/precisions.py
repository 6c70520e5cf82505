"""Names of mixed precision in Lightning, accelerate and transformers, and what records call it."""

from __future__ import annotations

MIXED_PRECISIONS = {
    "bf16": "mixed_bfloat16", "bf16-mixed": "mixed_bfloat16",
    "fp16": "mixed_float16", "16-mixed": "mixed_float16", "16": "mixed_float16",
}  # fmt: skip

"""Write the descriptions that ``vmselect demo`` ranks: ``python -m tests.support.write_descriptions``. Needs Keras."""

from __future__ import annotations

from pathlib import Path

import vmselect as vs

FOLDER = Path(vs.__file__).parent / "example_descriptions"
IMAGES, SENTENCES, TOKENS, WORDS = 1_281_167, 1_000_000, 128, 32_000


def describe_resnet() -> vs.Profile:
    """ResNet-50 as trained on ImageNet: 90 epochs of 1.28 million images."""
    import keras

    model = keras.applications.ResNet50(weights=None)
    return vs.describe(model, batch_size=256, examples=IMAGES, optimizer="sgd", epochs=90, precision="mixed_float16")


def describe_transformer() -> vs.Profile:
    """A small transformer that classifies sentences of 128 tokens: six layers, 512 wide."""
    import keras
    from keras import layers

    tokens = keras.Input((TOKENS,), dtype="int32")
    flow = layers.Embedding(WORDS, 512)(tokens)
    for _ in range(6):
        attention = layers.MultiHeadAttention(8, 64)(flow, flow)
        flow = layers.LayerNormalization()(flow + attention)
        inner = layers.Dense(2048, activation="gelu")(flow)
        flow = layers.LayerNormalization()(flow + layers.Dense(512)(inner))
    classes = layers.Dense(20, activation="softmax")(layers.GlobalAveragePooling1D()(flow))
    model = keras.Model(tokens, classes, name="transformer")
    return vs.describe(
        model, batch_size=128, examples=SENTENCES, optimizer="adam", epochs=10, precision="mixed_float16"
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, described in (("resnet50", describe_resnet()), ("transformer", describe_transformer())):
        print(described.model_copy(update={"writer": "vmselect example"}).save(FOLDER / f"{name}.json"))

"""Models that ``describing.py`` describes: those of Keras, own ones of Keras and torch, and Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A model to describe: how to make it, and the arguments of ``describe``."""

    build: Callable[[], Any]
    inputs: Any = None
    batch_size: int = 8


APPLICATIONS = (  # noqa: SIM905 - forty words
    "ConvNeXtBase ConvNeXtLarge ConvNeXtSmall ConvNeXtTiny ConvNeXtXLarge DenseNet121 DenseNet169 DenseNet201 "
    "EfficientNetB0 EfficientNetB1 EfficientNetB2 EfficientNetB3 EfficientNetB4 EfficientNetB5 EfficientNetB6 "
    "EfficientNetB7 EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2 EfficientNetV2B3 EfficientNetV2L "
    "EfficientNetV2M EfficientNetV2S InceptionResNetV2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Large "
    "MobileNetV3Small NASNetLarge NASNetMobile ResNet50 ResNet101 ResNet152 ResNet50V2 ResNet101V2 ResNet152V2 VGG16 "
    "VGG19 Xception"
).split()

# -- Keras -------------------------------------------------------------------------------------------------------------


def make_keras() -> Mapping[str, Case]:
    """Own models of Keras, which every backend trains."""
    import keras
    from keras import layers, ops

    class Block(layers.Layer):
        """Transformer block."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)
            self.dense = keras.Sequential([layers.Dense(4 * width, activation="gelu"), layers.Dense(width)])
            self.before, self.after = layers.LayerNormalization(), layers.LayerNormalization()

        def call(self, x: Any) -> Any:
            y = self.before(x)
            x = x + self.attention(y, y)
            return x + self.dense(self.after(x))

    class Positions(layers.Layer):
        """Custom layer with weights."""

        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(1, *shape[1:]))

        def call(self, x: Any) -> Any:
            return x + self.table

    class Swish(layers.Layer):
        """Custom layer without weights."""

        def call(self, x: Any) -> Any:
            return x * ops.sigmoid(x)

    class Backend(layers.Layer):
        """Custom layer that calls functions of its backend."""

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 256))

        def call(self, x: Any) -> Any:
            if keras.backend.backend() == "tensorflow":
                import tensorflow

                return tensorflow.nn.relu(tensorflow.raw_ops.MatMul(a=x, b=tensorflow.convert_to_tensor(self.kernel)))
            if keras.backend.backend() == "torch":
                import torch

                return torch.relu(torch.matmul(x, self.kernel.value))
            import jax

            return jax.nn.relu(jax.numpy.asarray(x) @ self.kernel.value)

    class Mixer(keras.Model):
        """Subclass that computes with keras.ops."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = layers.Conv2D(128, 8, 8)
            self.tokens, self.channels = (layers.Dense(256, activation="gelu") for _ in range(2))
            self.back, self.out, self.head = layers.Dense(64), layers.Dense(128), layers.Dense(10)

        def call(self, x: Any, training: bool = False) -> Any:
            x = ops.reshape(self.patches(x), (-1, 64, 128))
            x = x + ops.transpose(self.back(self.tokens(ops.transpose(x, (0, 2, 1)))), (0, 2, 1))
            x = x + self.out(self.channels(x))
            return self.head(ops.mean(x, axis=1))

    class Gan(keras.Model):
        """Two models that an own training step calls."""

        def __init__(self) -> None:
            super().__init__()
            self.generator = keras.Sequential([
                keras.Input((128,)), layers.Dense(7 * 7 * 128), layers.Reshape((7, 7, 128)),
                layers.Conv2DTranspose(64, 4, 2, "same", activation="relu"),
                layers.Conv2DTranspose(1, 4, 2, "same", activation="sigmoid"),
            ])  # fmt: skip
            self.discriminator = keras.Sequential([
                keras.Input((28, 28, 1)), layers.Conv2D(64, 4, 2, "same", activation="leaky_relu"),
                layers.Conv2D(128, 4, 2, "same", activation="leaky_relu"), layers.GlobalMaxPooling2D(), layers.Dense(1),
            ])  # fmt: skip

        def train_step(self, *data: Any) -> dict[str, Any]:
            raise NotImplementedError

    def transformer() -> Any:
        ids = keras.Input((128,), dtype="int32")
        x = Positions()(layers.Embedding(20_000, 256)(ids))
        for _ in range(4):
            x = Block(256, 8)(x)
        return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))

    def recurrent(layer: Callable[..., Any]) -> Callable[[], Any]:
        def build() -> Any:
            return keras.Sequential([
                keras.Input((200,)), layers.Embedding(20_000, 128), layer(layers.LSTM(64, return_sequences=True)),
                layer(layers.GRU(64)), layers.Dense(1, activation="sigmoid"),
            ])  # fmt: skip

        return build

    def unet() -> Any:
        def double(x: Any, filters: int) -> Any:
            for _ in range(2):
                x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
            return x

        image = x = keras.Input((128, 128, 3))
        kept = []
        for filters in (32, 64, 128):
            kept.append(double(x, filters))
            x = layers.MaxPooling2D()(kept[-1])
        x = double(x, 256)
        for filters in (128, 64, 32):
            x = layers.Concatenate()([layers.Conv2DTranspose(filters, 2, 2)(x), kept.pop()])
            x = double(x, filters)
        return keras.Model(image, layers.Conv2D(2, 1)(x))

    def several_inputs() -> Any:
        image, text, numbers = keras.Input((64, 64, 3)), keras.Input((32,), dtype="int32"), keras.Input((10,))
        seen = layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, activation="relu")(image))
        meant = layers.LSTM(64)(layers.Embedding(1_000, 32)(text))
        x = layers.Dense(64, activation="relu")(layers.Concatenate()([seen, meant, numbers]))
        return keras.Model([image, text, numbers], [layers.Dense(1)(x), layers.Dense(5)(x)])

    def mixed() -> Any:
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return keras.applications.ResNet50(weights=None)
        finally:
            keras.config.set_dtype_policy(before)

    def preprocessed() -> Any:
        augment = [layers.RandomFlip(), layers.RandomRotation(0.1), layers.RandomZoom(0.1), layers.Rescaling(1 / 255)]
        convolutions = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3)]
        return keras.Sequential([keras.Input((96, 96, 3)), *augment, *convolutions, layers.Flatten(), layers.Dense(5)])

    def frozen() -> Any:
        base = keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=(160, 160, 3))
        base.trainable = False
        image = keras.Input((160, 160, 3))
        pooled = layers.GlobalAveragePooling2D()(base(layers.Rescaling(1 / 127.5, offset=-1)(image), training=False))
        return keras.Model(image, layers.Dense(1)(layers.Dropout(0.2)(pooled)))

    def half_frozen() -> Any:
        model = frozen()
        base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
        base.trainable = True
        for layer in base.layers[:100]:
            layer.trainable = False
        return model

    def lora() -> Any:
        model = transformer()
        for layer in model._flatten_layers():
            if isinstance(layer, layers.EinsumDense):
                layer.enable_lora(8)
            elif not layer.weights or not hasattr(layer, "_layers") or not layer._layers:
                layer.trainable = False
        return model

    def backend() -> Any:
        return keras.Sequential([keras.Input((784,)), layers.Dense(512), Backend(), Swish(), layers.Dense(10)])

    return {
        "transformer": Case(transformer),
        "LSTM + GRU": Case(recurrent(lambda layer: layer)),
        "Bidirectional": Case(recurrent(layers.Bidirectional)),
        "U-Net": Case(unet),
        "GAN, own train_step": Case(Gan),
        "several inputs": Case(several_inputs),
        "ResNet50 mixed_float16": Case(mixed),
        "MLP-Mixer, keras.ops": Case(Mixer, (64, 64, 3)),
        "augmentation layers": Case(preprocessed),
        "MobileNetV2 frozen": Case(frozen),
        "MobileNetV2 half frozen": Case(half_frozen),
        "transformer LoRA": Case(lora),
        "functions of backend": Case(backend),
    }


# -- torch -------------------------------------------------------------------------------------------------------------


def make_torch() -> Mapping[str, Case]:
    """Own modules of torch."""
    import torch
    from torch import nn

    def unit(channels: int, filters: int, size: int = 3, stride: int = 1, groups: int = 1) -> Any:
        convolution = nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(filters), nn.ReLU(inplace=True))

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                unit(channels, width, 1), unit(width, width, 3, stride), nn.Conv2d(width, 4 * width, 1, bias=False),
                nn.BatchNorm2d(4 * width),
            )  # fmt: skip
            changes = stride > 1 or channels != 4 * width
            self.short = unit(channels, 4 * width, 1, stride)[:2] if changes else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.main(x) + self.short(x))

    def resnet() -> Any:
        blocks, channels = [], 64
        for width, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(Bottleneck(channels, width, first if number == 0 else 1))
                channels = 4 * width
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
        return nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, *head)

    def frozen() -> Any:
        model = resnet().requires_grad_(False)
        model[-1] = nn.Linear(2048, 5)
        return model

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (32, 64, 128)
            self.down = nn.ModuleList(self.double(c, f) for c, f in zip((3, *sizes), sizes, strict=False))
            self.middle = self.double(128, 256)
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * f, f, 2, 2) for f in reversed(sizes))
            self.mix = nn.ModuleList(self.double(2 * f, f) for f in reversed(sizes))
            self.head = nn.Conv2d(32, 2, 1)

        @staticmethod
        def double(channels: int, filters: int) -> Any:
            return nn.Sequential(unit(channels, filters), unit(filters, filters))

        def forward(self, x: Any) -> Any:
            kept = []
            for part in self.down:
                kept.append(part(x))
                x = nn.functional.max_pool2d(kept[-1], 2)
            x = self.middle(x)
            for up, mix in zip(self.up, self.mix, strict=True):
                x = mix(torch.cat([up(x), kept.pop()], 1))
            return self.head(x)

    class Text(nn.Module):
        def __init__(self, packed: bool = False) -> None:
            super().__init__()
            self.embedding, self.packed = nn.Embedding(20_000, 128), packed
            self.layer = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True, dropout=0.2)
            self.head = nn.Linear(512, 2)

        def forward(self, ids: Any) -> Any:
            x = self.embedding(ids)
            if self.packed:
                lengths = (ids > 0).sum(1).cpu()
                x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                return self.head(self.layer(x)[1][0][-2:].transpose(0, 1).flatten(1))
            return self.head(self.layer(x)[0].mean(1))

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(8_000, 512)
            self.transformer = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
            self.head = nn.Linear(512, 8_000)

        def forward(self, source: Any, target: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
            return self.head(self.transformer(self.embedding(source), self.embedding(target), tgt_mask=mask))

    class Experts(nn.Module):
        """Mixture of experts: each token goes to the expert with the highest score."""

        def __init__(self) -> None:
            super().__init__()
            self.inside, self.gate, self.head = nn.Linear(64, 256), nn.Linear(256, 4), nn.Linear(256, 10)
            self.experts = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))

        def forward(self, x: Any) -> Any:
            x = self.inside(x)
            weights, chosen = self.gate(x).softmax(-1).max(-1)
            mixed = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero()[:, 0]
                mixed = mixed.index_add(0, rows, expert(x[rows]) * weights[rows, None])
            return self.head(mixed)

    class Checkpointed(nn.Module):
        """Computes its blocks again in the backward pass instead of keeping their activations."""

        def __init__(self, again: bool) -> None:
            super().__init__()
            self.blocks, self.again = nn.ModuleList(unit(64, 64) for _ in range(8)), again
            self.stem, self.head = unit(3, 64), nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.again else block(x)
            return self.head(x.mean((2, 3)))

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, weight: Any) -> Any:
            context.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            x, weight = context.saved_tensors
            return gradient @ weight.t(), x.t() @ gradient

    class Function(nn.Module):
        """Calls an own autograd.Function."""

        def __init__(self) -> None:
            super().__init__()
            self.inside, self.weight = nn.Linear(64, 256), nn.Parameter(torch.zeros(256, 10))

        def forward(self, x: Any) -> Any:
            return Custom.apply(self.inside(x), self.weight)

    class Cells(nn.Module):
        """A loop over a recurrent cell."""

        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(64, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            state = None
            for moment in x.unbind(1):
                state = self.cell(moment, state)
            return self.head(state[0])

    def autocast() -> Any:
        class Autocast(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = resnet()

            def forward(self, x: Any) -> Any:
                with torch.autocast(x.device.type, torch.bfloat16):
                    return self.network(x)

        return Autocast()

    image = (3, 224, 224)
    return {
        "ResNet-50": Case(resnet, image),
        "ResNet-50 frozen": Case(frozen, image),
        "ResNet-50 bfloat16": Case(lambda: resnet().to(torch.bfloat16), image),
        "ResNet-50 autocast": Case(autocast, image),
        "ResNet-50 DataParallel": Case(lambda: nn.DataParallel(resnet()), image),
        "ResNet-50 compiled": Case(lambda: torch.compile(resnet()), image),
        "U-Net": Case(UNet, (3, 128, 128)),
        "biLSTM": Case(Text, (200,)),
        "biLSTM packed": Case(lambda: Text(packed=True), (200,)),
        "LSTMCell loop": Case(Cells, (50, 64)),
        "nn.Transformer": Case(Translator, {"source": (64,), "target": (64,)}),
        "mixture of experts": Case(Experts, (64,)),
        "checkpointing": Case(lambda: Checkpointed(True), (3, 64, 64)),
        "without checkpointing": Case(lambda: Checkpointed(False), (3, 64, 64)),
        "autograd.Function": Case(Function, (64,)),
    }


# -- Hugging Face ------------------------------------------------------------------------------------------------------


def make_huggingface() -> Mapping[str, Case]:
    """Configurations of Hugging Face: nothing is downloaded."""
    import transformers as hf

    def ids(length: int, **more: Any) -> dict[str, Any]:
        return {"input_ids": (length,), **more}

    def checkpointed() -> Any:
        import torch

        with torch.device("meta"):
            model = hf.LlamaForCausalLM(hf.LlamaConfig(num_hidden_layers=8))
        model.gradient_checkpointing_enable()
        return model

    large: dict[str, Any] = {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128_256,
    }  # fmt: skip
    return {
        "GPT-2": Case(hf.GPT2Config, ids(1024)),
        "GPT-2 large": Case(lambda: hf.GPT2Config(n_embd=1280, n_layer=36, n_head=20), ids(1024)),
        "BERT": Case(hf.BertConfig, ids(512, attention_mask=(512,))),
        "RoBERTa": Case(hf.RobertaConfig, ids(512, attention_mask=(512,))),
        "DistilBERT": Case(hf.DistilBertConfig, ids(512)),
        "ViT": Case(hf.ViTConfig),
        "Swin": Case(hf.SwinConfig),
        "ConvNeXt": Case(hf.ConvNextConfig),
        "Llama 7B": Case(hf.LlamaConfig, ids(512)),
        "Llama 70B": Case(lambda: hf.LlamaConfig(**large), ids(4096)),
        "Llama checkpointed": Case(checkpointed, ids(512)),
        "Mistral": Case(lambda: hf.MistralConfig(num_hidden_layers=4), ids(1024)),
        "Qwen2": Case(hf.Qwen2Config, ids(512)),
        "Gemma": Case(hf.GemmaConfig, ids(512)),
        "Mixtral": Case(hf.MixtralConfig, ids(512)),
        "Switch": Case(hf.SwitchTransformersConfig, ids(128)),
        "T5": Case(hf.T5Config, ids(512)),
        "BART": Case(hf.BartConfig, ids(512)),
        "Whisper": Case(hf.WhisperConfig, {"input_features": (80, 3000), "decoder_input_ids": (64,)}),
        "wav2vec2": Case(hf.Wav2Vec2Config, {"input_values": (16_000,)}),
        "CLIP": Case(hf.CLIPConfig, {"input_ids": (77,), "pixel_values": (3, 224, 224), "return_loss": True}),
        "DETR-like YOLOS": Case(hf.YolosConfig),
        "Mamba": Case(lambda: hf.MambaConfig(num_hidden_layers=2), ids(64)),
    }


FAMILIES: Mapping[str, Callable[[], Mapping[str, Case]]] = {
    "keras": make_keras, "torch": make_torch, "huggingface": make_huggingface,
}  # fmt: skip

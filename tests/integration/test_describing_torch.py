"""Descriptions of torch modules: traced without values, and nothing of the module changes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import vmselect as vs
from vmselect.records.work import PRODUCTS, Work

torch = pytest.importorskip("torch")
nn = torch.nn

BATCH = 8


def describe(module: Any, **options: Any) -> Work:
    work = vs.describe(module, batch_size=BATCH, **options).work
    assert work is not None
    return work


def product_flops(work: Work) -> float:
    return sum(row.flops * row.count for row in work.operations.rows if row.kind in PRODUCTS)


def make_dense() -> Any:
    return nn.Sequential(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Reads(nn.Module):
    """Reads a value, which a tensor on the meta device has not."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(16, 4)

    def forward(self, x):
        if x.sum().item() > 1e9:
            x = x * 2
        return self.dense(x)


class Routes(nn.Module):
    """Computes more for larger batches."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(16, 4)

    def forward(self, x):
        for _ in range(int((x + 1).sum().item() // 16)):
            x = x + 1
        return self.dense(x)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(64, 128, **options)

    def forward(self, x):
        return self.layer(x)[0]


def test_products_and_gradients_of_a_dense_network() -> None:
    work = describe(make_dense(), inputs=(120,))
    # The first layer needs no gradient of its input.
    assert product_flops(work) == 2 * BATCH * (2 * 120 * 84 + 3 * 84 * 10)
    assert (work.method, work.parameters, work.parameter_tensors) == ("meta", 120 * 84 + 84 + 840 + 10, 4)
    assert work.saved_bytes > 4 * BATCH * 84


def test_a_batch_of_a_loader_is_taken_without_its_labels() -> None:
    shapes = describe(make_dense(), inputs=(120,))
    batch = [torch.zeros(3, 120), torch.zeros(3, dtype=torch.int64)]
    assert describe(make_dense(), inputs=batch).operations == shapes.operations


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("first", [True, False])
def test_recurrent_layers_are_exact(kind: Any, gates: int, first: bool) -> None:
    shape = (50, 64) if first else (20, 64)
    steps, batch = (50, BATCH) if first else (BATCH, 20)
    work = describe(Recurrent(kind, batch_first=first), inputs=shape)
    assert product_flops(work) == 2.0 * batch * steps * gates * 128 * (2 * 64 + 3 * 128)


def test_code_that_reads_values_is_executed_with_few_examples_and_extrapolated() -> None:
    work = describe(Reads(), inputs=(16,))
    assert work.method == "execution"
    assert "extrapolated" in work.caveats
    assert product_flops(work) == 2 * 2 * BATCH * 16 * 4


def test_operations_that_depend_on_the_data_are_refused() -> None:
    with pytest.raises(vs.errors.DescriptionError, match="depend on its data"):
        describe(Routes(), inputs=(16,))


def test_a_configuration_may_name_what_makes_no_model_of_it() -> None:
    transformers = pytest.importorskip("transformers")

    def make(named: str) -> Any:
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        return transformers.BertConfig(**sizes, vocab_size=100, architectures=[named])

    inputs = {"input_ids": (16,)}
    with pytest.raises(vs.errors.DescriptionError, match="makes no model"):
        vs.describe(make("GPT2LMHeadModel"), batch_size=4, inputs=inputs)
    for named in ("Trainer", "pipeline"):  # no models
        assert vs.describe(make(named), batch_size=4, inputs=inputs).model == "BertForMaskedLM"


def test_compiled_by_torchscript_is_refused() -> None:
    with pytest.raises(vs.errors.DescriptionError, match=r"before torch\.jit"):
        describe(torch.jit.script(make_dense()), inputs=(120,))


def test_a_projected_recurrence_is_counted() -> None:
    class Net(nn.Module):
        def __init__(self, projected: int) -> None:
            super().__init__()
            self.recurrent = nn.LSTM(16, 32, batch_first=True, proj_size=projected)

        def forward(self, tensor: torch.Tensor) -> torch.Tensor:
            return self.recurrent(tensor)[0]

    steps = 2 * BATCH * 10
    assert product_flops(describe(Net(0), inputs=(10, 16))) == steps * 128 * (2 * 16 + 3 * 32)
    assert product_flops(describe(Net(8), inputs=(10, 16))) == steps * (128 * (2 * 16 + 3 * 8) + 3 * 32 * 8)


def test_unknown_inputs_are_asked_for() -> None:
    with pytest.raises(vs.errors.DescriptionError, match="inputs="):
        describe(make_dense())


def test_nothing_of_the_module_and_no_random_state_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)  # also for a GPU that is not used yet
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(2))
    module(torch.randn(2, 3, 8, 8)).sum().backward()
    module.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    gradients = [weight.grad.clone() for weight in module.parameters()]
    random = torch.get_rng_state()
    describe(module, inputs=(3, 8, 8))
    assert not module.training
    assert not seeds
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(torch.equal(old, weight.grad) for old, weight in zip(gradients, module.parameters(), strict=True))


def test_hooks_of_the_user_do_not_run() -> None:
    module, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), []
    module[0].register_forward_hook(lambda *values: seen.append(values))
    module[1].register_full_backward_hook(lambda *values: seen.append(values))
    assert describe(module, inputs=(8,)).method == "meta"
    assert not seen


def test_a_hook_that_the_module_needs_runs() -> None:
    class Needs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.inner.register_forward_hook(lambda layer, inputs, output: (output, output))

        def forward(self, x):
            first, second = self.inner(x)
            return first @ second.T @ first

    assert describe(Needs(), inputs=(8,)).method == "meta"


def test_the_profile_names_the_module_and_its_precision() -> None:
    module = make_dense().to(torch.bfloat16)
    batch = torch.zeros(2, 120, dtype=torch.bfloat16)
    profile = vs.describe(
        module, batch_size=4, inputs=batch, optimizer=torch.optim.SGD(module.parameters(), momentum=0.9)
    )
    assert (profile.model, profile.environment.backend, profile.environment.precision) == (
        "Sequential", "torch", "bfloat16",
    )  # fmt: skip
    assert profile.work.optimizer == "momentum"
    assert profile.setup.structure is not None


class Text(nn.Module):
    """Reads the lengths of texts, and packs them if that is wanted."""

    def __init__(self, packs: bool):
        super().__init__()
        self.embedding, self.layer, self.head = (
            nn.Embedding(90, 16),
            nn.LSTM(16, 32, batch_first=True),
            nn.Linear(32, 2),
        )
        self.packs = packs

    def forward(self, ids):
        x = self.embedding(ids)
        if self.packs:
            lengths = (ids > 0).sum(1).cpu()
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.layer(x)[1][0][-1])


@pytest.mark.parametrize(("setting", "tf32"), [("highest", False), ("high", True), ("medium", True)])
def test_the_profile_states_whether_products_use_tf32(setting: str, tf32: bool) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        assert vs.describe(make_dense(), batch_size=BATCH, inputs=(120,)).environment.tf32 is tf32
    finally:
        torch.set_float32_matmul_precision(before)


SETTINGS = """
import torch
import vmselect as vs

b = torch.backends
SETTING
seen = vs.describe(torch.nn.Linear(4, 2), batch_size=2, inputs=(4,)).environment
print(seen.tf32, seen.convolution_tf32)
"""


@pytest.mark.parametrize(
    ("setting", "products", "convolutions"),
    [
        ("", False, True),
        ("b.cudnn.allow_tf32 = False", False, False),
        ("b.cuda.matmul.allow_tf32 = True; b.cudnn.allow_tf32 = False", True, False),
        ("b.fp32_precision = 'ieee'", False, False),
        ("b.fp32_precision = 'tf32'", True, True),
        ("b.cudnn.conv.fp32_precision = 'ieee'", False, False),
        ("b.fp32_precision = 'ieee'; b.cudnn.conv.fp32_precision = 'tf32'", False, True),
    ],
)
def test_convolutions_have_a_setting_of_their_own(setting: str, products: bool, convolutions: bool) -> None:
    """In a process of its own: after the newer settings were changed, the older ones cannot be read."""
    if "fp32_precision" in setting and not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this version of torch has only the older settings")
    command = [sys.executable, "-c", SETTINGS.replace("\nSETTING\n", f"\n{setting}\n")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(products), str(convolutions)]


def test_packed_sequences_count_as_full_ones() -> None:
    packed, padded = (describe(Text(packs), inputs=(50,)) for packs in (True, False))
    assert product_flops(packed) == product_flops(padded)
    assert (packed.method, packed.caveats) == ("execution", ("data_dependent", "extrapolated"))
    assert (padded.method, padded.caveats) == ("meta", ())


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.table = nn.Linear(4, 4), nn.Embedding(90, 4)

    def forward(self, source, numbers):
        return self.table(source).mean(1) + self.scale(numbers)


def test_shapes_of_one_dimension_may_be_those_of_tokens() -> None:
    work = describe(Pair(), inputs={"source": (30,), "numbers": torch.zeros(2, 4)})
    assert work.method == "meta"
    assert product_flops(work) == 2 * 2 * BATCH * 4 * 4


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(120, 84)

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.layer(x)


def test_autocast_inside_of_a_model_counts_as_float32() -> None:
    initialize = torch.autocast.__init__
    attention = nn.functional.scaled_dot_product_attention
    mixed, plain = describe(Mixed(), inputs=(120,)), describe(nn.Linear(120, 84), inputs=(120,))
    assert (mixed.method, mixed.operations) == ("meta", plain.operations)
    assert torch.autocast.__init__ is initialize
    assert nn.functional.scaled_dot_product_attention is attention


def test_a_compiled_model_is_counted_with_a_caveat() -> None:
    module = make_dense()
    plain = describe(module, inputs=(120,))
    compiled = describe(torch.compile(module), inputs=(120,))
    assert compiled.operations == plain.operations
    assert (plain.caveats, compiled.caveats) == ((), ("compiled",))
    assert describe(nn.DataParallel(module), inputs=(120,)).operations == plain.operations


def test_a_frozen_part_has_no_gradients_and_no_state() -> None:
    module = nn.Sequential(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    module[0].requires_grad_(False)
    work = describe(module, inputs=(120,), optimizer="adam")
    assert product_flops(work) == 2 * BATCH * (120 * 84 + 2 * 84 * 10)
    assert (work.parameters, work.constants) == (84 * 10 + 10, 120 * 84 + 84)


class Blocks(nn.Module):
    def __init__(self, again: bool):
        super().__init__()
        self.blocks, self.again = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)), again

    def forward(self, x):
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x


def test_checkpointing_computes_more_and_keeps_less() -> None:
    whole, again = (describe(Blocks(again), inputs=(64,)) for again in (False, True))
    products = 2 * BATCH * 64 * 64
    assert (product_flops(whole), product_flops(again)) == (17 * products, 23 * products)
    assert again.saved_bytes < 0.6 * whole.saved_bytes


class TestData:
    def test_a_loader_tells_batch_size_and_examples_and_is_not_advanced(self) -> None:
        rows = torch.utils.data.TensorDataset(torch.randn(100, 120), torch.zeros(100, dtype=torch.int64))
        generator = torch.Generator().manual_seed(1)
        loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True, generator=generator)
        module = make_dense()
        before = generator.get_state(), torch.get_rng_state()
        profile = vs.describe(module, inputs=loader)
        assert (profile.batch_size, profile.setup.examples, profile.steps_per_epoch) == (8, 100, 13)
        assert profile.work.operations == describe(module, inputs=(120,)).operations
        assert torch.equal(generator.get_state(), before[0])
        assert torch.equal(torch.get_rng_state(), before[1])
        assert vs.describe(make_dense(), inputs=rows, batch_size=8).work.operations == profile.work.operations
        options: dict[str, Any] = {"epochs": 2, "machines": ["g5.xlarge"], "records": []}
        ranking = vs.recommend(profile, **options).to_frame()
        assert vs.recommend(module, loader, **options).to_frame().equals(ranking)
        assert vs.recommend(module, rows, batch_size=8, **options).to_frame().equals(ranking)
        with pytest.raises(vs.errors.ArgumentError, match="batch_size="):
            vs.recommend(module, rows, **options)

    def test_data_that_would_be_consumed_is_refused(self) -> None:
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                yield torch.zeros(120)

        class Counted(Stream):
            def __len__(self):
                return 1

        for stream in (Stream(), Counted()):
            with pytest.raises(vs.errors.DescriptionError, match="next"):
                vs.describe(make_dense(), inputs=torch.utils.data.DataLoader(stream), batch_size=8)
        with pytest.raises(vs.errors.DescriptionError, match="is empty"):
            vs.describe(make_dense(), inputs=torch.utils.data.TensorDataset(torch.zeros(0, 120)), batch_size=8)
        with pytest.raises(vs.errors.DescriptionError, match="Pass one batch"):
            vs.describe(make_dense(), inputs=iter([torch.zeros(8, 120)]), batch_size=8)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"model": nn.Linear}, "the class Linear, not one of its objects"),
            ({"model": "resnet50"}, "of the type str"),
            ({"batch_size": None}, "batch size is unknown"),
            ({"optimizer": 3}, 'such as "adam"'),
        ],
    )
    def test_arguments_of_the_wrong_kind(self, arguments: Any, expected: str) -> None:
        usual = {"model": make_dense(), "batch_size": 8, "inputs": (120,)}
        with pytest.raises(vs.errors.ArgumentError, match=expected):
            vs.describe(**{**usual, **arguments})


SMALL_EXPERTS = {
    "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 50, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


class TestHuggingFace:
    @pytest.fixture
    def transformers(self) -> Any:
        return pytest.importorskip("transformers")

    def test_a_model_larger_than_any_laptop_is_described_from_its_configuration(self, transformers: Any) -> None:
        config = transformers.LlamaConfig(
            hidden_size=8192, intermediate_size=28672, num_hidden_layers=4, num_attention_heads=64,
            num_key_value_heads=8, vocab_size=32000,
        )  # fmt: skip
        work = describe(config, inputs={"input_ids": (128,)})
        width, wide, tokens = 8192, 28672, BATCH * 128
        layer = 2 * tokens * (2 * width * width + 2 * width * 1024 + 3 * width * wide)
        attention = 2 * 2 * BATCH * 64 * 128 * 128 * 128
        expected = 3 * (4 * (layer + attention) + 2 * tokens * width * 32000)
        assert product_flops(work) == pytest.approx(expected, rel=0.01)
        assert work.parameters > 3.5e9

    @pytest.mark.parametrize(
        ("name", "sizes", "inputs"),
        [
            ("GPT2Config", {"n_layer": 2, "n_embd": 64, "n_head": 2}, {"input_ids": (32,)}),
            ("BertConfig", {"num_hidden_layers": 2}, {"input_ids": (32,), "attention_mask": (32,)}),
            ("ViTConfig", {"num_hidden_layers": 2}, None),
            ("T5Config", {"num_layers": 2}, {"input_ids": (32,)}),
        ],
    )
    def test_configurations(self, transformers: Any, name: str, sizes: Any, inputs: Any) -> None:
        work = describe(getattr(transformers, name)(**sizes), inputs=inputs)
        assert work.method == "meta"
        assert work.caveats == ()
        # Every weight of a product is used once per position, in three products.
        assert product_flops(work) > 0

    def test_scores_of_attention_are_not_kept(self, transformers: Any) -> None:
        sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
        short, long = (
            describe(transformers.GPT2Config(**sizes), inputs={"input_ids": (length,)}) for length in (256, 512)
        )
        # The kernels of GPUs compute them again, so that the memory grows in proportion to the length.
        assert long.saved_bytes == pytest.approx(2 * short.saved_bytes, rel=0.05)
        assert long.product_flops > 2 * short.product_flops

    @pytest.mark.parametrize(
        ("name", "sizes", "inputs", "method"),
        [
            ("MixtralConfig", SMALL_EXPERTS, {"input_ids": (32,)}, "meta"),
            ("WhisperConfig", {"encoder_layers": 1, "decoder_layers": 1},
             {"input_features": (80, 3000), "decoder_input_ids": (16,)}, "meta"),
            ("Wav2Vec2Config", {"num_hidden_layers": 2}, {"input_values": (8_000,)}, "meta"),
            ("CLIPConfig", {}, {"input_ids": (16,), "pixel_values": (3, 224, 224), "return_loss": True}, "meta"),
        ],
    )  # fmt: skip
    def test_speech_images_with_text_and_experts(
        self, transformers: Any, name: str, sizes: Any, inputs: Any, method: str
    ) -> None:
        work = describe(getattr(transformers, name)(**sizes), inputs=inputs)
        assert work.method == method
        assert ("data_dependent" in work.caveats) == (name == "MixtralConfig")
        again = describe(getattr(transformers, name)(**sizes), inputs=inputs)
        assert again.operations == work.operations  # layers that are left out at random count

    def test_experts_get_equal_numbers_of_tokens(self, transformers: Any) -> None:
        def count(experts: int) -> float:
            config = transformers.MixtralConfig(**SMALL_EXPERTS, num_local_experts=experts)
            return describe(config, inputs={"input_ids": (32,)}).product_flops

        # More experts compute no more: only the choice among them is larger.
        assert count(8) - count(4) == 3 * 2 * BATCH * 32 * 64 * 4

    @pytest.mark.filterwarnings("ignore")
    def test_a_trainer_tells_all_that_is_needed(self, transformers: Any, tmp_path: Any) -> None:
        config = transformers.BertConfig(
            num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64
        )  # fmt: skip
        rows = [{"input_ids": [1] * 16, "attention_mask": [1] * 16, "labels": 0}] * 50
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=8, report_to=[], use_cpu=True, num_train_epochs=2, bf16=True
        )  # fmt: skip
        trainer = transformers.Trainer(
            transformers.BertForSequenceClassification(config), arguments, train_dataset=rows
        )  # fmt: skip
        torch.manual_seed(3)
        state = torch.get_rng_state()
        profile = vs.describe(trainer)
        assert (profile.batch_size, profile.setup.examples, profile.setup.epochs) == (8, 50, 2)
        assert (profile.work.optimizer, profile.environment.precision) == ("adamw", "mixed_bfloat16")
        assert profile.work.method == "meta"
        assert torch.equal(torch.get_rng_state(), state)
        options: dict[str, Any] = {"machines": ["g5.xlarge"], "records": []}
        assert vs.recommend(trainer, **options).to_frame().equals(vs.recommend(profile, **options).to_frame())
        own = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
        trainer = transformers.Trainer(trainer.model, arguments, train_dataset=rows, optimizers=(own, None))
        assert vs.describe(trainer).work.optimizer == "sgd"

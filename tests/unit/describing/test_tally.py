"""Formulas for the operations that layers consist of."""

from __future__ import annotations

import pytest

from vmselect.describing.layers import einsum_sizes
from vmselect.describing.tally import Attention, Convolution, Recurrence, Tally, count_normalization
from vmselect.records.work import Operation


def flops(tally: Tally, *kinds: str) -> float:
    return sum(row.flops * row.count for row in tally.rows if row.kind in kinds)


def test_a_matrix_product_has_two_gradients_and_that_of_its_bias() -> None:
    tally = Tally()
    tally.matrix(16, 84, 120, wanted=True, trained=True, bias=True)
    assert tally.rows == [
        Operation("mm", 322_560.0, 53_712.0, 16, 84, 120, 1, 1),
        Operation("mm", 322_560.0, 53_376.0, 16, 120, 84, 1, 1),
        Operation("mm", 322_560.0, 53_376.0, 84, 120, 16, 1, 1),
        Operation("elem", 84.0, 5_712.0, 0, 0, 0, 1, 1),
    ]


def test_the_first_layer_needs_no_gradient_of_its_input() -> None:
    tally = Tally()
    tally.matrix(16, 84, 120, wanted=False, trained=True)
    assert [(row.m, row.n, row.k) for row in tally.rows] == [(16, 84, 120), (84, 120, 16)]


def test_a_convolution_with_strides_computes_as_much_backward_as_forward() -> None:
    tally = Tally()
    Convolution(25_088, 6_272, 128, 128, 9).count(tally, wanted=True, trained=True, bias=False)
    forward, inputs, weights = tally.rows
    assert (forward.m, forward.n, forward.k) == (6_272, 128, 1_152)
    assert (inputs.m, inputs.n, inputs.k) == (25_088, 128, 1_152)
    assert (weights.kind, weights.m, weights.n, weights.k) == ("convw", 128, 1_152, 6_272)
    assert {row.flops for row in tally.rows} == {2.0 * 6_272 * 128 * 1_152}
    assert {row.bytes for row in tally.rows} == {16_646_144.0}


def test_a_transposed_convolution_is_the_gradient_of_a_convolution() -> None:
    tally = Tally()
    Convolution(100, 400, 32, 16, 4).count(tally, wanted=True, trained=True, bias=False, transposed=True)
    assert {row.flops for row in tally.rows} == {2.0 * 100 * 32 * 16 * 4}
    assert [row.kind for row in tally.rows] == ["conv", "conv", "convw"]


def test_each_channel_of_a_depthwise_convolution_is_a_group() -> None:
    tally = Tally()
    Convolution(2_048, 2_048, 58, 58, 9, groups=58).count(tally, wanted=True, trained=True, bias=False)
    assert [(row.kind, row.n, row.b) for row in tally.rows] == [
        ("dwconv", 1, 58),
        ("dwconv", 1, 58),
        ("dwconvw", 9, 58),
    ]
    assert {row.flops for row in tally.rows} == {2.0 * 2_048 * 9 * 58}


@pytest.mark.parametrize("gates", [1, 3, 4])
def test_a_recurrent_layer_computes_what_its_equations_say(gates: int) -> None:
    steps, batch, features, units = 50, 8, 64, 128
    tally = Tally()
    Recurrence(steps, batch, features, units, gates).count(tally, wanted=True, trained=True)
    forward = 2.0 * batch * steps * gates * units * (features + units)
    assert flops(tally, "mm", "rnn") == 3 * forward
    assert sum(row.count for row in tally.rows if row.kind == "rnn") == 2 * steps


def test_attention_has_two_products_per_direction_and_operand() -> None:
    tally = Tally()
    Attention(1, 20, 1_024, 1_024, 64, 64).count(tally, backward=True, dropout=False)
    products = [row for row in tally.rows if row.kind == "bmm"]
    assert len(products) == 6
    assert {row.flops for row in products} == {2.0 * 20 * 1_024 * 1_024 * 64}
    assert {row.bytes for row in products} == {94_371_840.0}


def test_a_normalization_over_the_batch_reads_its_input_once_more() -> None:
    over_batch, over_features = Tally(), Tally()
    count_normalization(over_batch, 1_000, backward=True, over_batch=True)
    count_normalization(over_features, 1_000, backward=True, over_batch=False)
    assert [row.bytes for row in over_batch.rows] == [12_000, 20_000]
    assert [row.bytes for row in over_features.rows] == [8_000, 12_000]


@pytest.mark.parametrize(
    ("equation", "first", "second", "sizes"),
    [
        ("abc,cd->abd", (8, 16, 32), (32, 4), (128, 4, 32, 1)),
        ("...x,xy->...y", (8, 16, 32), (32, 4), (128, 4, 32, 1)),
        ("aecd,abcd->acbe", (2, 7, 3, 5), (2, 6, 3, 5), (7, 6, 5, 6)),
    ],
)
def test_sizes_of_an_equation(
    equation: str, first: tuple[int, ...], second: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    assert einsum_sizes(equation, first, second) == sizes

"""Names of GPUs: every shipped model in every spelling, and the variants that price lists give one name."""

from __future__ import annotations

import datetime as dt
import math

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect.catalog import gpu_specs
from vmselect.catalog.files import parse
from vmselect.catalog.gpu_names import CARDS, NAMES, UNKNOWN, VARIANTS, find_gpus, name_gpu
from vmselect.catalog.history import price_history
from vmselect.catalog.shipped import newest_prices
from vmselect.errors import VmselectError


def shipped_gpus() -> list[tuple[str, float]]:
    """Each GPU model of the shipped prices, with each memory of a whole GPU."""
    rows = newest_prices()
    rows = rows[rows["gpu_count"] > 0]
    whole = rows["gpu_memory_gib"] / rows["gpu_count"].clip(upper=1)
    return sorted(set(zip(rows["gpu_model"].astype(str), whole.round(2).fillna(-1), strict=True)))


def test_every_shipped_gpu_has_figures_or_is_listed_as_unknown() -> None:
    specs = set(gpu_specs().index)
    assert {model for model, _ in shipped_gpus()} <= specs | UNKNOWN
    assert not UNKNOWN & specs


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
@pytest.mark.parametrize("separator", ["-", "", "_", " "])
def test_every_shipped_gpu_is_named_in_any_spelling(spell, separator) -> None:
    for model, memory in shipped_gpus():
        raw = spell(model.replace("-", separator))
        assert name_gpu(raw, None if memory < 0 else memory) == model, (raw, memory)


def test_the_tables_name_models_with_figures() -> None:
    models = {*NAMES.values(), *(variant.model for variants in VARIANTS.values() for variant in variants)}
    assert models <= set(gpu_specs().index) | UNKNOWN
    for variants in VARIANTS.values():
        for variant in variants:
            assert gpu_specs().loc[variant.model, "memory_gb"] == pytest.approx(variant.memory_gib, rel=0.05)


@pytest.mark.parametrize(
    ("name", "memory", "model"),
    [
        ("A100", 40, "A100"),
        ("A100", 80, "A100-80GB"),
        ("A100", 79.35, "A100-80GB"),
        ("A100-80GB-SXM", None, "A100-80GB"),
        ("A100 PCIe", 80, "A100-80GB-PCIe"),
        ("A100_PCIE", 40, "A100-PCIe"),
        ("A100-SXM4-40GB", None, "A100"),
        ("H100", None, "H100"),
        ("H100", 94, "H100-NVL"),
        ("H100-NVL", None, "H100-NVL"),
        ("H100_SXM", 79.6, "H100"),
        ("H100-NVLINK", 80, "H100"),
        ("H100 PCIe", 80, "H100-PCIe"),
        ("NVIDIA H100 80GB HBM3", None, "H100"),
        ("H100-MEGA", None, "H100-MEGA"),
        ("H200-SXM", 141, "H200"),
        ("Tesla_V100", 16, "V100"),
        ("V100", 32, "V100-32GB"),
        ("V100-32G", None, "V100-32GB"),
        ("RTX6000", 96, "RTX-PRO-6000"),
        ("RTX6000", 24, "RTX-6000"),
        ("RTX6000", 48, "RTX-6000-Ada"),
        ("RTX PRO 6000 96GB", None, "RTX-PRO-6000"),
        ("RTXPRO6000WS", 95.6, "RTX-PRO-6000-WS"),
        ("RTXPRO6000S", 95.6, "RTX-PRO-6000"),
        ("RTXA6000", 47.3, "A6000"),
        ("RTXA4500", 20, "A4500"),
        ("NVIDIA GeForce RTX 4090", 24, "RTX-4090"),
        ("RTX_4070S_Ti", 16, "RTX-4070-Ti-SUPER"),
        ("M4000", None, "Quadro-M4000"),
        ("T4g", 16, "T4G"),
        ("Radeon MI25", None, "MI25"),
        ("Radeon Pro V520", 8, "Radeon-Pro-V520"),
        ("Gaudi HL-205", 32, "Gaudi"),
        ("GTX1660S", None, "GTX1660S"),
        ("A 9000", None, "A-9000"),
        ("", None, ""),
    ],
)
def test_names_of_price_lists(name, memory, model) -> None:
    assert name_gpu(name, memory) == model


def test_a_variant_without_figures_does_not_get_those_of_another() -> None:
    assert name_gpu("H100", 10) == "H100-10GB"
    assert name_gpu("V100-PCIE", 32) == "V100-PCIE-32GB"


def test_the_machine_and_the_provider_tell_a_card_from_a_board() -> None:
    assert name_gpu("H100", 80, machine="gpu_1x_h100_pcie") == "H100-PCIe"
    assert name_gpu("H100", 80, provider="hyperstack", machine="n3-H100x8-NVLink") == "H100-PCIe"
    for provider in CARDS:
        assert name_gpu("A100", 80, provider=provider) == "A100-80GB-PCIe"
        assert name_gpu("A100-SXM", 80, provider=provider) == "A100-80GB"
        assert name_gpu("L40S", 48, provider=provider) == "L40S"
        assert name_gpu("B200", 180, provider=provider) == "B200"  # there is no card


def test_every_shipped_gpu_keeps_its_model_with_its_provider_and_machine() -> None:
    rows = newest_prices()
    rows = rows[(rows["gpu_count"] >= 1) & rows["gpu_memory_gib"].notna()]
    rows = rows.drop_duplicates(["provider", "gpu_model", "gpu_memory_gib", "instance_type"])
    for row in rows.itertuples():
        name = name_gpu(row.gpu_model, row.gpu_memory_gib, provider=row.provider, machine=row.instance_type)
        assert name == row.gpu_model, row


def test_a_provider_without_a_memory_means_its_own_variant() -> None:
    assert name_gpu("RTX6000", provider="nebius") == "RTX-PRO-6000"
    assert name_gpu("RTX6000", 24, provider="nebius") == "RTX-6000"
    assert name_gpu("RTX6000", provider="lambda") == "RTX-6000"


SKYPILOT = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region
2x-H100_NVL-32-65536,H100,2,32,64,"{'Gpus': [{'Name': 'H100'}], 'TotalGpuMemoryInMiB': 191660}",4.0,,"Iowa, US, NA"
4x-RTX_4070S_Ti-9-65536,RTX4070,4,32,64,"{'Gpus': [{'Name': 'RTX4070'}], 'TotalGpuMemoryInMiB': 65504}",0.8,,"FR, EU"
"""
RUNPOD = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,SpotPrice,Price,GpuInfo
9x_A100-80GB_X,A100-80GB,9,8,9,US,,1.3,"{'Gpus': [{'Name': 'A100 PCIe'}], 'TotalGpuMemoryInMiB': 720}"
9x_A100-80GB-SXM_X,A100-80GB-SXM,9,8,9,US,,1.4,"{'Gpus': [{'Name': 'A100 SXM'}], 'TotalGpuMemoryInMiB': 720}"
4x_RTX6000_X,RTX6000,4,8,9,US,,1.5,
1x_H100_SECURE,H100,1,8,9,US,,1.5,
"""


@pytest.mark.parametrize(
    ("provider", "text", "gpus"),
    [
        (
            "vast",
            SKYPILOT,
            {"2x-H100_NVL-32-65536": ("H100-NVL", 94), "4x-RTX_4070S_Ti-9-65536": ("RTX-4070-Ti-SUPER", 16)},
        ),
        (
            "runpod",
            RUNPOD,
            {
                "9x_A100-80GB_X": ("A100-80GB-PCIe", 80),
                "9x_A100-80GB-SXM_X": ("A100-80GB", 80),
                "4x_RTX6000_X": ("RTX-6000", math.nan),
                "1x_H100_SECURE": ("H100-PCIe", 80),  # a shipped type: its memory is known
            },
        ),
    ],
)
def test_gpus_of_skypilots_files(tmp_path, provider, text, gpus) -> None:
    rows, _ = parse(text.encode(), tmp_path / "vms.csv", date=dt.date(2026, 8, 22), provider=provider)
    for row in rows.itertuples():
        model, memory = gpus[row.instance_type]
        assert row.gpu_model == model
        assert row.gpu_memory_gib == pytest.approx(memory, rel=0.01, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("RTX4090", "RTX-4090"),
        ("GeForce RTX 4090", "RTX-4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("A100-SXM4-80GB", "A100-80GB"),
        ("H100-80GB", "H100"),
        ("RTXPRO6000", "RTX-PRO-6000"),
        ("RTX-A6000", "A6000"),
    ],
)
def test_a_user_names_a_gpu_as_drivers_and_price_lists_do(name: str, model: str) -> None:
    catalog = vs.Catalog.embedded("2026-08-22")
    assert set(catalog.offers(gpu=name, market=None)["gpu_model"]) == {model}
    assert set(catalog.where(gpu=name).gpus()["gpu_model"]) == {model}
    assert price_history(name).equals(price_history(model))


@pytest.mark.parametrize("name", ["H100-40GB", "A100 30GB", "RTX 1234", ""])
def test_a_gpu_of_another_memory_is_no_gpu_of_the_catalog(name: str) -> None:
    with pytest.raises(VmselectError):
        vs.Catalog.embedded("2026-08-22").offers(gpu=name)


def test_a_model_of_a_price_file_goes_before_the_usual_name() -> None:
    assert find_gpus("H100-80GB", ["H100", "H100-80gb"]) == ["H100-80gb"]
    assert find_gpus("H100-80GB", ["H100"]) == ["H100"]
    assert find_gpus("my GPU", ["My-GPU", "my_gpu", "T4"]) == ["My-GPU", "my_gpu"]


def test_an_own_price_in_another_spelling_is_an_offer_of_that_gpu() -> None:
    own = {"provider": "lab", "instance_type": "box", "region": "here", "usd_per_hour": 1.0, "gpu_count": 1}
    catalog = vs.Catalog.embedded("2026-08-22").with_offers([own | {"gpu_model": "h100"}])
    for name in ("H100", "h100"):
        offers = catalog.offers(gpu=name)
        assert set(offers["gpu_model"]) == {"H100"}
        assert {"lab", "aws", "cudo"} <= set(offers["provider"])
    (row,) = catalog.gpus(gpu="H100").itertuples()
    assert (row.provider, row.usd_per_gpu_hour) == ("lab", 1.0)


def test_a_ranking_is_restricted_to_a_gpu_by_any_name() -> None:
    profiles = [make_profile(name, 0.1, provider="aws", region="us-east-1") for name in ("g4dn.xlarge", "g5.xlarge")]
    ranking = vs.rank(profiles, epochs=10, gpu="NVIDIA A10G", catalog=vs.Catalog.embedded("2026-08-22"))
    assert [row.instance_type for row in ranking] == ["g5.xlarge"]

"""examples/cloud_studies.py makes the published summaries again and finds what does not add up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from errata import find_numbers, list_numbers

SCRIPT = Path(__file__).parents[2] / "examples" / "cloud_studies.py"


@pytest.fixture(scope="module")
def output() -> str:
    done = subprocess.run([sys.executable, "-W", "error", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "download_latency: AWS 0.78 ± 0.02, Azure 0.49 ± 0.17 (median 0.40, printed 0.40); Azure -37.2 %",
        "upload_latency: AWS 1.84 ± 0.12, Azure 3.26 ± 0.68",
        "inference_time: AWS 0.63 ± 0.04, Azure 0.60 ± 0.01 (median 0.60, printed 0.60); Azure -4.8 %",
        "throughput: AWS 477.14 ± 41.26, Azure 1145.78 ± 49.13",
        "Azure +140.1 %",
        "winner AWS (printed: AWS)",
        "download_latency, Azure: after batch 30 the level changes",
        "upload_latency, Azure: after batch 80 the level changes",
        "not reproduced: H = 93.754 of download_latency needs the single values",
        "not reproduced: H = 71.019 of inference_time needs the single values",
        "not reproduced: the effects of dataset and network, whose sizes are not printed",
        "118,000 images are 115 batches of 1,024 and one of 240",
        "80 epochs of 270 s on AWS are 6 h 0 min; the training is printed with 6 h 29 min",
        "erratum: H = 171.753 of upload_latency is that of 115 + 115 values that do not overlap",
        "erratum: H = 167.253 of throughput is that of 112 + 112 values that do not overlap",
        "8 of 8 winners as printed",
        "its parts sum to 1.8515 and 44.436",
        "48 cells, 240 runs, 0 incomplete",
        "environment matters most",
        "TensorFlow takes 2.5 times as long as the others",
        "cost: CPU 27, GPU 4, both 31 USD (printed 27, 4, 31)",
        "its total is 6.75 times that of the GPU",
        "cost 7.55 USD; 10.91 is printed",
        "56.25 times the pixels",
        "75 % more memory, as printed",
        "too few runs for a test",
        "Azure takes 1.47 times as long (printed: 1.5)",
        "printed as 390 and as 401 s, 120 and 131 s more than AWS's",
        "the difference of their epochs is printed as 128 to 133 s and as 120 s",
        "18,000 disk reads are printed as a rate per second",
        "Azure's disk is printed as Premium SSD (section 4.8) and as standard storage (section 3.5)",
        "the caption of Table 8 names a configuration of a machine",
        "the log loses worker 0 317 s after the start of its server and 280 s after the workers connected; two epochs",
        "real-time inference: Azure (inference_time: Azure)",
        "code-focused developers: AWS (the authors' judgement)",
        "8 requirements; 4 of 4 that a measure decides agree with it",
        "AWS retrieves and infers 0.71 MB/s by its own times a megabyte; 477 MB/s is printed",
        "Azure retrieves and infers 0.92 MB/s by its own times a megabyte; 1146 MB/s is printed",
        "the price of the EC2 machine (0.526); SageMaker's is 0.7364",
        "a mebibyte is 4.9 % more than 10^6 bytes",
        "not comparable: one training x list price (Linux) is 2.16 USD on AWS and 3.65 USD on Azure; 23.54 EUR on AWS",
        "for the whole experiment on Windows: 3.63 and 1.22 EUR per hour",
        "8 rows; AWS is first in 4, Azure in 2",
        "AWS: precision and recall imply 30% positive images, an accuracy of 0.77 and a weighted F1 of 0.78",
        "Azure: precision and recall imply 30% positive images, an accuracy of 0.78 and a weighted F1 of 0.79",
        "disk $0.071, monitoring $0.027",
        "disk 0.065, monitoring 0.024",
        "EUR (at 0.92 EUR per USD)",
        "take 11.9 minutes; about 5 is printed",
        "three workers are 2.5 times as fast, not 6 times",
        "an efficiency of 200%; by the log it is 84%",
        "a test accuracy of 69 % is printed for three workers",
        "10.0.0.6 is the slowest of 3 workers and last in 3 of 3 rounds. Equal shares of the batch take 17% more time",
        "four workers: Standard_D2s_v3 was not probed on two nodes",
    ],
)
def test_it_prints_what_was_published_and_what_does_not_hold(output: str, line: str) -> None:
    assert line in output


def test_every_winner_is_the_printed_one(output: str) -> None:
    lines = [line for line in output.splitlines() if "winner" in line and "printed:" in line]
    assert len(lines) == 4
    for line in lines:
        ours, printed = line.rpartition("winner ")[2].rstrip(")").split(" (printed: ")
        assert ours == printed


def test_every_number_of_the_errata_is_printed(output: str) -> None:
    assert not list_numbers("Endpoints", "Frameworks", "X-rays", "Workers") - find_numbers(output)

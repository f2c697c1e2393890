"""What page and card say about the images: weights alone have none, and the first ten of a split are part of it."""

import re

from run_folders import make_run

from hardtack.report import write_card, write_page
from hardtack.results import Result, append_results


def add(folder, *pairs, suite="analysis", **more):
    """A number for each (data, n), as analyses leave them."""
    folder.mkdir(exist_ok=True)
    description = more.pop("description", "32×32 as stored; ")
    append_results(
        folder,
        [
            Result(
                metric="some_number", value=0.5, n=n, data=data, suite=suite, evaluation=f"{suite}-{n}-{place}",
                data_description=f"{description}first {n}" if n else "", **more,
            )
            for place, (data, n) in enumerate(pairs)
        ],
    )  # fmt: skip
    return folder


def lede(folder):
    page = write_page(folder, folder.parent / "report.html").read_text()
    return re.search(r'<p class="lede">(.*?) ·', page)[1]


def data_lines(folder):
    card = write_card(folder).read_text()
    return [line for line in card.split("## Data")[1].split("##")[0].split("\n") if line.startswith("- Me")]


def test_numbers_without_images_are_not_measured_on_any(tmp_path):
    folder = add(make_run(tmp_path / "trades", sweep=False), ("", 0), ("digits/test", 0))
    assert lede(folder) == "Measured on digits/test (360 images)"
    assert len(data_lines(folder)) == 1 and "Reported on" not in write_card(folder).read_text()


def test_weights_alone_are_neither_reported_nor_unmeasured(tmp_path):
    assert lede(add(tmp_path / "weights", ("", 0))) == "Measured without images"


def test_the_first_few_images_of_a_split_are_no_other_set(tmp_path):
    folder = add(tmp_path / "looked", *(("digits/test", n) for n in (1, 20, 1000, 3, 50)), ("digits/train", 1))
    assert lede(folder) == "Measured on digits/test (up to 1,000 images) and digits/train (1 image)"
    assert data_lines(folder) == [
        "- Measured on digits/test, up to 1,000 images: 32×32 as stored; first 1000.",
        "- Measured on digits/train, 1 image: 32×32 as stored; first 1.",
    ]


def test_other_images_of_the_same_name_are_another_set(tmp_path):
    folder = add(tmp_path / "looked", ("digits/test", 20))
    add(folder, ("digits/test", 10), description="28×28 as stored; ")
    assert lede(folder) == "Measured on digits/test (10 images) and digits/test (20 images)"


def test_reported_numbers_are_said_to_be_even_where_the_images_are_counted(tmp_path):
    folder = add(tmp_path / "paper", ("cifar10", 10_000), suite="reported", extra={"source": "reported"})
    assert lede(folder) == "Reported, not measured here"
    assert "- Reported on cifar10, not measured here." in write_card(folder).read_text()


def test_the_card_repeats_an_analysis_as_an_analysis(tmp_path):
    folder = add(tmp_path / "looked", ("digits/test", 20), checkpoint="best", extra={"words": ["attention", "n=20"]})
    assert "\nhardtack analyze looked attention n=20\n" in write_card(folder).read_text()

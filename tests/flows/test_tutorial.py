"""docs/tutorial.md as its reader would follow it: its file, its commands, a small network and a folder of images."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from torchvision.utils import save_image

import hardtack as ht
from hardtack.commands.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 10),
        )
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The reader's folder: net.py, mine.pt, mine.py as the page has it, and images/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text(NET)
    Path("mine.py").write_text(re.search(r"```python\n(# mine\.py\n.*?)```", PAGE, re.S)[1])
    from net import Net

    torch.manual_seed(0)
    net = Net()
    model = ht.wrap(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    x, y, _ = ht.load_data("digits", "train").batch(torch.arange(500))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    torch.save(net.state_dict(), "mine.pt")
    for split in ("train", "test"):
        x, y, _ = ht.load_data("digits", split).batch(torch.arange(40))
        for number, (image, label) in enumerate(zip(x, y, strict=True)):
            Path(f"images/{split}/{label}").mkdir(parents=True, exist_ok=True)
            save_image(image, f"images/{split}/{label}/{number}.png")
    return tmp_path


def test_every_command_of_the_page_works(project, capsys):
    blocks = [code for language, code in re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S) if not language]
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    assert len(lines) == 12 and all(line.startswith("hardtack ") for line in lines)
    said = {}
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] != "plan":  # which times the machine, in seconds; tests of its own run it
            assert main(words) == 0, line
            said[line] = capsys.readouterr().out
    values = [text for line, text in said.items() if "suite=autoattack" in line]
    assert len(values) == 2 and all("robust accuracy linf:8/255" in text and "n=40" in text for text in values)
    (clean,) = (text for line, text in said.items() if "suite=clean" in line)
    assert float(re.search(r"clean accuracy +([\d.]+)%", clean)[1]) > 70
    (compared,) = (text for line, text in said.items() if " compare " in line)
    assert "n=40" in compared and "robust accuracy linf:8/255" in compared
    assert (project / "runs" / "report.html").is_file()

"""What an evaluation imports: nothing that takes seconds and that it has no use for."""

import subprocess
import sys

EVALUATE = """
import sys, torch
import hardtack as ht
torch.manual_seed(0)
model = ht.load_model("vit_digits", num_classes=10, depth=1)
x = torch.rand(6, 3, 32, 32)
y = model(x).argmax(dim=1)
found = ht.evaluate(model, (x, y), suite="autoattack", tier="fast", threat="linf:0.00005", quiet=True)
assert found.robust_accuracy > 0 and "audit" in str(found)  # the audit has run
ht.attack(model, x, y, "fab", threat="linf:0.0005", steps=2)
loaded = {"torch._dynamo", "torch._inductor", "timm", "sympy", "pandas", "sklearn"} & set(sys.modules)
assert not loaded, loaded
"""


def test_an_evaluation_imports_no_compiler_and_no_sympy():
    words = [sys.executable, "-c", EVALUATE]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]

"""A small study on digits: two rows, two trainings, evaluations, a worst case, an analysis and a fact."""

import copy

TOY = {
    "title": "A toy",
    "paper": "Nobody, table 0",
    "asks": "does it run?",
    "trainings": {
        "standard": {"recipe": "digits/standard"},
        "adversarial": {"recipe": "digits/standard", "objective": {"name": "adversarial"}},
    },
    "rows": {
        "small": {"title": "Small", "group": "all", "x": 1, "model": {"name": "vit_digits", "options": {"depth": 1}}},
        "large": {"title": "Large", "group": "all", "x": 2, "model": {"name": "vit_digits", "options": {"depth": 2}}},
    },
    "columns": {
        "vanilla": {"training": "standard", "suite": "clean", "metric": "clean_accuracy"},
        "clean": {"suite": "clean", "metric": "clean_accuracy"},
        "pgd": {"suite": "pgd", "threat": "linf:0.1", "attack": {"steps": 1}, "metric": "robust_accuracy"},
        "worst": {"worst_of": ["clean", "pgd"], "title": "worst case"},
        "sparsity": {"analysis": "sparsity", "metric": "sparsity", "column": "global", "ours": True},
        "size": {"fact": "parameters", "ours": True},
    },
    "paper_says": {
        "small": {"vanilla": 90.5, "clean": 80, "pgd": None, "worst": 40},
        "large": {"vanilla": 91.5, "clean": 81, "pgd": 45, "worst": None},
    },
    "claims": [
        {"says": "a larger network is better", "test": "clean(large) > clean(small)", "where": "section 1"},
        "pgd(small) < clean(small)",
    ],
    "plots": [{"kind": "lines", "y": ["clean", "pgd"]}],
    "figures": ["sparsity"],
    "scales": {
        "smoke": {
            "settings": {
                "data": {"limit": 64}, "train": {"epochs": 1, "batch_size": 16}, "validation": {"every": 1},
                "augment": {"crop_padding": 0},
            },
            "trainings": {"adversarial": {"objective": {"attack": {"name": "pgd", "threat": "linf:0.1", "steps": 1}}}},
            "n": 12, "note": "digits in place of photographs",
        },
        "short": {"keep": ["small"], "columns": {"pgd": None}},
        "paper": {},
    },
}  # fmt: skip


def toy(**changes):
    """The values of the study, with sections replaced."""
    return {**copy.deepcopy(TOY), **changes}

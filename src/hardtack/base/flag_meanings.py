"""The flags that a result can carry: what each means, and what to do (docs/trust.md has the same table).

A flag is made where something looks wrong (`evaluation/sanity.py`, `evaluation/detectors.py` …); a test fails for one
that is not described here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlagMeaning:
    """`level` red: do not believe the number as it stands; yellow: look again."""

    code: str
    level: str
    means: str
    action: str


def _rows(*rows: tuple[str, str, str, str]) -> dict[str, FlagMeaning]:
    return {row[0]: FlagMeaning(*row) for row in rows}


FLAGS = _rows(
    (
        "disagrees",
        "red",
        (
            "shown by the report and `compare`: the verdict file or the evidence record beside the number gives "
            "another one"
        ),
        "`hardtack verify` names every field; `hardtack evaluate` measures again",
    ),
    (
        "zero_gradient",
        "red",
        (
            "on over 1 % of the attacked images the gradient was exactly zero, or NaN, where a search began: it is "
            "masked or saturated"
        ),
        "`attack.loss=margin` against saturation; `suite=autoattack` or Square against hiding; run `selftest`",
    ),
    (
        "masked_gradients",
        "red",
        (
            "Square, which uses no gradient, broke over 0.2 % of the images after the gradient attacks had failed; or "
            "the audit of `tier=fast` broke more than one point of the accuracy"
        ),
        "the gradients are misleading: use `tier=max`, and an attack made for this defence",
    ),
    (
        "gradient_mismatch",
        "red",
        (
            "on images that remain correct the margin does not change as the gradient predicts (agreement below 0.5, "
            "where 1 is exact and honest networks measure 0.6 to 1), or a gradient step is no better than random ones"
        ),
        "an attack that does not need this gradient: `attack.smooth`, `attack.bpda`, `hardtack adapt`",
    ),
    (
        "unconstrained_failure",
        "red",
        ("gradient ascent that may change every pixel at will breaks less than 60 % of the images that remain correct"),
        "an attack that does not need this gradient: `attack.smooth`, `attack.bpda`, `hardtack adapt`",
    ),
    (
        "unstable_predictions",
        "red",
        (
            "images that remain correct under attack are misclassified at random points of the ball: the search "
            "failed on them"
        ),
        "a stronger attack; `tier=fast` or `tier=max`",
    ),
    (
        "audit_failed",
        "red",
        (
            "the audit broke images of its sample that the fixed list of this tier had left: the number is too high "
            "(yellow: a single image)"
        ),
        "`tier=max` attacks all of them so",
    ),
    (
        "not_finite",
        "red",
        (
            "NaN or infinite logits during the search; they never count as a success, so the image was not attacked "
            "properly"
        ),
        "find the overflow in the model; `runtime.precision=fp32`",
    ),
    (
        "dynamic",
        "red",
        "the model takes gradients while it predicts (it optimises at test time); attacks see only the result",
        "an attack that goes through the optimisation; the number may be far too high",
    ),
    (
        "random_outputs",
        "red",
        "two passes over the same images give different logits: the result is a single random draw",
        "switch dropout or noise off, or `suite=autoattack version=rand`, which averages over draws",
    ),
    (
        "batch_dependent",
        "red",
        "the logits of an image depend on the other images of its batch, or on the batch size",
        "normalisation in eval mode; no statistics over the batch",
    ),
    (
        "grad_dependent",
        "red",
        (
            "the logits change when gradients are enabled: attacks search on another function than the one that is "
            "measured"
        ),
        "remove what asks `torch.is_grad_enabled()` or `x.requires_grad`",
    ),
    (
        "call_dependent",
        "red",
        (
            "the logits of the same images changed during the evaluation: they depend on the number of calls, on "
            "earlier inputs or on the time"
        ),
        "make the model a function of its input alone",
    ),
    (
        "copy_dependent",
        "red",
        "a deep copy of the model gives other logits; searches may run on a copy",
        "keep what decides the answer in parameters, buffers or plain attributes",
    ),
    (
        "changes_input",
        "red",
        (
            "the model changes its input in place; it was given copies, so the numbers are about the images "
            "themselves, and your tensors stay as they were"
        ),
        "`x = x - mean` instead of `x -= mean`; no `inplace=True` on the input",
    ),
    (
        "dtype_dependent",
        "red",
        "in the precision of the search the logits are others than in fp32, by more than rounding explains",
        "`runtime.precision=fp32`",
    ),
    (
        "constant_outputs",
        "red",
        "the logits do not depend on the image",
        "check the weights, and look for a layer whose output does not depend on its input",
    ),
    (
        "untrained",
        "red",
        "a model was named without weights: they are random; or `adapt` left its head new",
        "`model.weights=FILE` or `model.pretrained=true`",
    ),
    (
        "other_classes",
        "red",
        "the data and the model differ in their number of classes; labels were compared by number",
        "data with the model's classes in the model's order",
    ),
    (
        "class_names",
        "red",
        "the run's classes and the data's have other names or another order",
        "rename or reorder the folders",
    ),
    (
        "silent_success",
        "red",
        (
            "the attack found a misclassified point, but returned another, correctly classified one: it keeps the "
            "wrong iterate"
        ),
        "repair the attack (`keep: best` for ascent), or take one that keeps its best point",
    ),
    (
        "unverified",
        "yellow",
        (
            "on over 1 % of the attacked images a search claimed a success that fp32 did not confirm; those images "
            "count as robust (not raised for random models)"
        ),
        "`tier=exact`, or for other suites `runtime.precision=fp32`",
    ),
    (
        "flat_loss",
        "yellow",
        "on over a tenth of the images that remain correct the loss never rose above its initial value",
        "run `selftest`; another loss, or `attack=apgd`",
    ),
    (
        "no_attention",
        "yellow",
        (
            "patch_fool cannot read attention between patches of this model: patches are chosen in another way, and "
            "the attention loss is left out"
        ),
        (
            "compare it only with results of the same choice (`attack.choose=saliency attack.attention_weight=0` on "
            "the others)"
        ),
    ),
    (
        "fewer_images",
        "yellow",
        ("`n` asks for more images than the data has: all of them are used, and the interval is that of their number"),
        "nothing, or a larger data set",
    ),
    (
        "few_classes",
        "yellow",
        (
            "too few classes for the attack's settings: `dlr` became the margin, or there are fewer wrong classes "
            "than targets"
        ),
        "nothing; the attack is as strong as it can be with so few classes",
    ),
    (
        "unconfirmed_constants",
        "yellow",
        (
            "of `suite=perturbations`: mFR divides by AlexNet's flip probabilities, which the benchmark's code does "
            "not contain; the values used here are not confirmed"
        ),
        "read the mean flip probability, which needs no such constants",
    ),
    (
        "unreliable",
        "red",
        "of a number that was taken from elsewhere (`hardtack import`): its source calls it unreliable",
        "measure it here: `hardtack evaluate`",
    ),
    (
        "not_trained_with_noise",
        "yellow",
        "of `suite=smoothing`: under its noise the model is far less accurate than on the images themselves",
        "train with the noise: `objective=gaussian objective.sigma=…`",
    ),
    (
        "radius_out_of_reach",
        "yellow",
        "of `suite=smoothing`: so many copies at this level of certainty cannot certify a radius as large as asked for",
        "a larger `smoothing.n` or `smoothing.sigma`, or a smaller radius",
    ),
    (
        "many_abstentions",
        "yellow",
        "of `suite=smoothing`: on over a tenth of the images no class is shown to have more than half of the copies",
        "a larger `smoothing.n` decides some of them",
    ),
    (
        "no_minimum_norm",
        "yellow",
        "of `suite=curve`: the attack does not search for the smallest perturbation in this norm: "
        "the curve is too high below its largest radius",
        "`attack=fmn` or another attack of the smallest perturbation, or `suite=sweep`",
    ),
    (
        "note",
        "yellow",
        "a remark without a code of its own: of an older version, or of code of yours",
        "read it",
    ),
)

"""Singular values that are known, found without the matrix."""

import numpy as np
import pytest
import torch

from hardtack.analysis.jacobian.lanczos import lanczos
from hardtack.analysis.jacobian.power import power
from hardtack.analysis.jacobian.products import Matrices
from hardtack.base import randomness

METHODS = pytest.mark.parametrize("find", [lanczos, power])


def with_values(values, count=3, outputs=None, inputs=None, seed=0):
    """Matrices that have these singular values."""
    values = torch.as_tensor(values, dtype=torch.float64)
    outputs, inputs = outputs or len(values), inputs or len(values)
    seeds = torch.Generator().manual_seed(seed)
    left = torch.linalg.qr(torch.randn(count, outputs, len(values), generator=seeds, dtype=torch.float64))[0]
    right = torch.linalg.qr(torch.randn(count, inputs, len(values), generator=seeds, dtype=torch.float64))[0]
    return Matrices((left * values @ right.transpose(1, 2)).float())


def keys(count=3):
    return randomness.make_keys(torch.arange(count), 0)


@METHODS
@pytest.mark.parametrize("outputs, inputs", [(60, 60), (80, 60), (60, 80), (10, 300)])
def test_singular_values_are_those_of_the_matrix(find, outputs, inputs):
    matrices = Matrices(torch.randn(4, outputs, inputs, generator=torch.Generator().manual_seed(3)))
    found = find(matrices, keys(4), top=3, tolerance=1e-5, most=3000, vectors=True)
    exact = torch.linalg.svdvals(matrices.matrices.double())[:, :3].numpy()
    assert found.converged.all() and found.sigma == pytest.approx(exact, rel=1e-5)
    left, right = torch.as_tensor(found.left), torch.as_tensor(found.right)
    pushed = torch.stack([matrices.times(right[:, k]) for k in range(3)], 1)
    assert torch.allclose(pushed, left * torch.as_tensor(found.sigma[..., None]).float(), atol=3e-4 * exact.max())
    assert torch.allclose(right @ right.transpose(1, 2), torch.eye(3).expand(4, 3, 3), atol=1e-4)


@METHODS
@pytest.mark.parametrize("second", [1.0, 1 - 1e-5, 0.9995, 0.999, 0.995])
def test_nearly_equal_values_still_give_the_largest(find, second):
    values = np.concatenate([[1.0, second], np.linspace(0.9, 0.0, 198)])
    found = find(with_values(values, count=20), keys(20), tolerance=1e-3, most=1000)
    assert found.converged.all()
    assert np.abs(found.sigma - 1.0).max() < 1e-3


@METHODS
def test_the_error_said_is_not_too_small(find):
    """A true singular value lies within the residual of every one found, however early the search ends."""
    matrices = Matrices(torch.randn(5, 80, 80, generator=torch.Generator().manual_seed(5)))
    exact = torch.linalg.svdvals(matrices.matrices.double()).numpy()
    for most in (10, 16, 20, 40):
        found = find(matrices, keys(5), tolerance=1e-6, most=most)
        away = np.abs(exact - found.sigma).min(axis=1)
        assert (away <= found.error[:, 0] * found.sigma[:, 0] + 1e-5 * exact[:, 0]).all()
        assert not found.converged.any() and (found.products <= most).all()
        assert (found.sigma[:, 0] <= exact[:, 0] * (1 + 1e-5)).all()  # from below


@METHODS
def test_orthogonal_maps_keep_lengths(find):
    found = find(with_values(np.ones(50)), keys(), top=2, vectors=True)
    assert found.sigma == pytest.approx(1.0, abs=1e-5) and found.converged.all()


@METHODS
def test_nothing_has_no_length(find):
    found = find(Matrices(torch.zeros(2, 7, 5)), keys(2))
    assert (found.sigma == 0).all() and found.converged.all()


@METHODS
def test_few_dimensions_are_exact_and_equal_values_are_counted(find):
    found = find(with_values([3.0, 3.0, 2.0], outputs=4, inputs=6), keys(), top=3, tolerance=1e-5, most=400)
    if find is power:  # one vector at a time cannot tell equal values apart, a block can
        assert found.sigma == pytest.approx(np.tile([3.0, 3.0, 2.0], (3, 1)), rel=1e-4)
    assert found.sigma[:, 0] == pytest.approx(3.0, rel=1e-5)


@METHODS
def test_an_image_does_not_mind_its_company(find):
    matrices = torch.randn(6, 70, 70, generator=torch.Generator().manual_seed(7))
    matrices[0] *= torch.linspace(1, 0, 70)  # converges at another time than the others
    together = find(Matrices(matrices), keys(6), top=2, most=200)
    alone = [find(Matrices(matrices[i : i + 1]), keys(6)[i : i + 1], top=2, most=200) for i in range(6)]
    assert together.sigma == pytest.approx(np.concatenate([one.sigma for one in alone]), rel=1e-5)
    assert list(together.products) == [int(one.products[0]) for one in alone]
    assert len(set(together.products)) > 1


@METHODS
def test_what_is_no_number_stays_none(find):
    matrices = torch.randn(2, 30, 30, generator=torch.Generator().manual_seed(8))
    matrices[0, 0, 0] = torch.nan
    found = find(Matrices(matrices), keys(2), most=200)
    assert np.isnan(found.sigma[0]).all() and not found.converged[0]
    assert found.sigma[1, 0] == pytest.approx(float(torch.linalg.matrix_norm(matrices[1], 2)), rel=1e-4)


def test_lanczos_needs_fewer_products():
    matrices = with_values(np.concatenate([[1.0], np.linspace(0.95, 0, 299)]))
    quick, slow = (find(matrices, keys(), tolerance=1e-3, most=2000) for find in (lanczos, power))
    assert quick.converged.all() and slow.converged.all()
    assert quick.products.max() < 60 < slow.products.min()

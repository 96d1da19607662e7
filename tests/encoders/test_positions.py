"""Tables of positions: which tensors they are, and what another number of patches makes of them."""

from __future__ import annotations

import pytest
import torch

from fedmia.encoders._positions import PREFIX, is_positions, resample_table


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("pos_embed", True), ("vit.pos_embed", True), ("a.position_embeddings", True),
        ("a.position_embedding.weight", True), ("position_embedding.bias", False),
        ("a.proj.weight", False), ("a.pos_embed.weight", False), ("pos_embedded", False),
    ],
)  # fmt: skip
def test_is_positions__by_the_name(name: str, wanted: bool) -> None:
    assert is_positions(name) is wanted


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_resampled__keeps_the_prefix_and_the_places_of_a_plane(prefix: int) -> None:
    """A plane over the grid is one again, but near the borders; transposed it would be another."""
    side, new_side = 8, 4
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    plane = torch.stack([rows.flatten(), columns.flatten()], dim=1)
    table = torch.cat([100 + torch.arange(2.0 * prefix).view(prefix, 2), plane])[None]
    resampled_table = resample_table(table, new_side**2 + prefix)
    assert resampled_table is not None and resampled_table.shape == (1, new_side**2 + prefix, 2)
    assert torch.equal(resampled_table[:, :prefix], table[:, :prefix])
    grid = resampled_table[0, prefix:].view(new_side, new_side, 2)
    want = (torch.arange(4.0) + 0.5) * side / new_side - 0.5
    torch.testing.assert_close(grid[1:3, 1, 0], want[1:3], atol=0.06, rtol=0)
    torch.testing.assert_close(grid[1, 1:3, 1], want[1:3], atol=0.06, rtol=0)


def test_resampled__of_the_same_number_is_the_same_and_of_no_square_is_none() -> None:
    table = torch.randn(1, 17, 3, dtype=torch.float64).half()
    same = resample_table(table, 17)
    assert same is not None and same.dtype == torch.float16
    torch.testing.assert_close(same, table)
    flat = resample_table(table[0], 5)  # without a dimension before it: one token and two by two
    assert flat is not None and flat.shape == (5, 3) and torch.equal(flat[0], table[0, 0])
    single = resample_table(torch.randn(1, 2, 3), 5)  # one patch and a class token is the least
    assert single is not None and single.shape == (1, 5, 3)
    assert resample_table(torch.randn(1, 17, 3), 8) is None
    assert resample_table(torch.randn(1, 0, 3), 4) is None
    # As many prefix tokens as there are at most, and no more.
    assert resample_table(torch.randn(1, 36 + PREFIX - 1, 3), 4 + PREFIX - 1) is not None
    assert resample_table(torch.randn(1, 10**4 + PREFIX, 3), 100**2 + 201 + PREFIX) is None

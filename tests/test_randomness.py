"""Random numbers that belong to one purpose each."""

from __future__ import annotations

import torch

from continual_crust.randomness import PrivateRandomness, generator_for, seed_for


def test_purposes_and_seeds_do_not_share_draws() -> None:
    seeds = {seed_for(seed, purpose) for seed in range(50) for purpose in ("order", "noise", "model", "training")}
    assert len(seeds) == 200
    draws = [torch.rand(4, generator=generator_for(0, purpose)) for purpose in ("order", "noise")]
    assert not torch.equal(*draws)


def test_generators_repeat() -> None:
    assert torch.equal(*(torch.rand(4, generator=generator_for(3, "noise")) for _ in range(2)))


def test_private_randomness_continues_its_own_sequence_and_restores_the_global_one() -> None:
    torch.manual_seed(7)
    outside = torch.get_rng_state()
    whole, parts = (PrivateRandomness(1, torch.device("cpu")) for _ in range(2))
    with whole.in_force():
        expected = torch.rand(6)
    drawn = []
    for _ in range(2):
        with parts.in_force():
            drawn.append(torch.rand(3))
        torch.rand(1)  # somebody else draws in between
        torch.set_rng_state(outside)
    assert torch.equal(torch.cat(drawn), expected)
    with whole.in_force():
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), outside)

"""Where clients run: balanced, and summed in an order that does not depend on devices."""

import numpy as np
import pytest

from holdfast.engine.layout import SlotLayout


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("clients", [1, 2, 7, 10, 64, 100])
@pytest.mark.parametrize("uniform", [True, False])
def test_everyone_has_one_place_on_the_device_of_its_leaf(devices, clients, uniform):
    rng = np.random.default_rng(clients)
    costs = np.full(clients, 5) if uniform else rng.lognormal(3, 1, clients).astype(int) + 1
    layout = SlotLayout(clients, uniform, devices)
    place, leaf = layout.arrange(costs)
    assert len(place) == len(leaf) == devices * layout.per_device
    assert sorted(place[place >= 0].tolist()) == list(range(clients))
    device = np.repeat(np.arange(devices), layout.per_device)
    assert (leaf // (layout.leaves // devices) == device).all()


@pytest.mark.parametrize("uniform", [True, False])
def test_leaves_and_their_order_do_not_depend_on_devices(uniform):
    rng = np.random.default_rng(0)
    costs = np.full(30, 5) if uniform else rng.lognormal(3, 1, 30).astype(int) + 1

    def leaves(devices):
        place, leaf = SlotLayout(30, uniform, devices).arrange(costs)
        taken = place >= 0
        return [place[taken & (leaf == k)].tolist() for k in range(8)]

    assert leaves(1) == leaves(2) == leaves(4) == leaves(8)


@pytest.mark.parametrize("parts", [2, 4])
def test_halves_change_places_so_that_clients_stay_where_their_states_are(parts):
    rng = np.random.default_rng(parts)
    for _ in range(20):
        costs = rng.integers(1, 9, 13)
        layout = SlotLayout(13, False, 4)
        place, leaf = layout.arrange(costs)
        # From where they would be, but for one half that stood in the other's place.
        home = np.full(13, -1)
        home[place[place >= 0]] = (np.flatnonzero(place >= 0) // (len(place) // parts)) ^ (
            parts // 2
        )
        turned, moved = layout.near_home(place, leaf, home, parts)
        there = np.flatnonzero(turned >= 0)
        assert (home[turned[there]] == there // (len(turned) // parts)).all()

        # Whoever were added up together are so now, in the same order, at every height of the tree.
        def groups(place, leaf, size):
            parts = [place[(leaf // size == k) & (place >= 0)] for k in range(8 // size)]
            return sorted(tuple(p.tolist() if size == 1 else sorted(p.tolist())) for p in parts)

        assert all(groups(place, leaf, n) == groups(turned, moved, n) for n in (1, 2, 4))
        device = np.repeat(np.arange(4), layout.per_device)
        assert (moved // 2 == device).all()


def test_work_is_balanced():
    costs = np.random.default_rng(1).lognormal(4, 0.6, 100).astype(int) + 1
    layout = SlotLayout(100, False, 2)
    place, _ = layout.arrange(costs)
    work = [costs[p[p >= 0]].sum() for p in place.reshape(2, -1)]
    assert max(work) < 1.02 * costs.sum() / 2


def test_equal_clients_need_no_spare_places():
    assert SlotLayout(10, True, 2).per_device == 5
    assert 5 < SlotLayout(10, False, 2).per_device < 10

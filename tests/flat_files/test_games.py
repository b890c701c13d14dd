"""Games whose files were damaged or edited."""

import pytest


@pytest.mark.parametrize("is_edited", [True, False])
def test_damaged_or_edited_record_does_not_block_other_games(storage, faults, is_edited):
    game = {"game_url": "https://space.example/play", "listed": True}
    first, _ = storage.add_client("Space Game", [], None, **game)
    if is_edited:
        faults.change_client(first.id, game_url="https://")
    else:
        faults.damage_client(first.id)
    second, _ = storage.add_client("Chess", [], None, **game)
    assert second.id in [each.id for each in storage.games(listed=True)]

"""Games whose files were damaged or edited."""

import pytest

from storage.errors import OriginTaken

GAME = {"game_url": "https://space.example/play", "listed": True}


def test_damaged_record_keeps_its_origin(storage, faults):
    first, _ = storage.clients.register("Space Game", [], None, **GAME)
    faults.damage_client(first.id)
    with pytest.raises(OriginTaken):
        storage.clients.register("Chess", [], None, **GAME)
    assert storage.clients.games(listed=True) == []


def test_edited_record_does_not_block_other_games(storage, faults):
    game = GAME
    first, _ = storage.clients.register("Space Game", [], None, **game)
    faults.change_client(first.id, game_url="https://")
    second, _ = storage.clients.register("Chess", [], None, **game)
    assert second.id in [each.id for each in storage.clients.games(listed=True)]

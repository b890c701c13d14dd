"""Each operation is killed, and its system calls fail, at its steps in turn, for real.

injection.py says what a step is. `.ci/run --all`, or `pytest -m ci --all-faults`, takes every step.
The everyday run takes every step for kills and failing calls of composite operations, and of the
rest a sample.
"""

import dataclasses
import stat
from collections.abc import Iterator

import injection
import pytest
from injection import (
    CALLS,
    CTRL_C,
    FAILING_DISK,
    FULL_DISK,
    KILL,
    USED_QUOTA,
    Injector,
    Met,
    Program,
    each_error,
    syncs_after_the_failed_one,
)
from needs import STRACE
from operations import (
    BOB,
    DONE,
    FAILED,
    FIRST_START,
    FULL,
    OLD_PICTURE,
    OPERATIONS,
    Installation,
    picture_of,
    prepare,
)

from storage import Storage, StorageError
from storage.flat_files import problems
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, STRACE]
disk, same_calls_each_time = injection.disk, injection.same_calls_each_time

# More than one record changes, or a record with its index entries or its pictures.
COMPOSITE = {
    *(FIRST_START, "adding a user", "adding an invited user", "deleting an account"),
    *("renaming a user", "changing an email address", "changing a picture"),
}
NEVER_SYNCED = {"adding a code", "spending a code"}  # what a power cut leaves of them is dead
assert OPERATIONS.keys() >= COMPOSITE | NEVER_SYNCED


@pytest.fixture(scope="module")
def program(same_calls_each_time) -> Iterator[Program]:
    with Program("operations.py", "write_file") as program:
        yield program


@pytest.fixture(scope="module")
def templates(same_calls_each_time, tmp_path_factory) -> dict[str, Installation]:
    """What is copied for each fault: the installation that the operations are done to."""
    prepared = Installation(tmp_path_factory.mktemp("prepared"))
    prepare(prepared.open())
    nothing = Installation(tmp_path_factory.mktemp("nothing"))
    return dict.fromkeys(OPERATIONS, prepared) | {FIRST_START: nothing}


@pytest.fixture
def injector(program, templates, disk, pytestconfig, subtests, monkeypatch) -> Injector:
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: what is left behind is old at once
    return Injector(program, templates, disk, pytestconfig, subtests)


def check_bystander(storage: Storage) -> None:
    bob = storage.read_user(BOB)
    assert (bob.name, bob.email) == ("Bob", "bob@example.org")
    assert storage.find_user("bob") == storage.find_user("BOB@example.org") == bob
    assert picture_of(storage, BOB) == OLD_PICTURE


def check_repair(name: str, met: Met) -> None:
    """`check --repair` leaves nothing behind, and changes nothing that anybody sees."""
    operation, there = OPERATIONS[name], met.there.copy(met.folder / "repaired")
    if there.data.exists():  # else the first start was killed before it made anything
        folders = str(there.data), str(there.pictures)
        assert all(problem.repaired for problem in check(*folders, repair=True))
        assert list(check(*folders)) == []
        assert not there.lasting_temporary_files()
        assert operation.state(there.open()) in (operation.old, operation.new)


def check_goes_on(name: str, met: Met) -> None:
    """Whatever was left: all can be done from here that could be done before or after."""
    operation, storage = OPERATIONS[name], met.there.open()
    state = operation.state(storage)
    assert state in (operation.old, operation.new)
    if state == operation.old:
        somebody_elses = met.there.copy(met.folder / "copy").open()
        somebody_elses.add_user(*operation.wants, "")
        operation.act(storage)
    assert operation.state(storage) == operation.new
    storage.add_user(*operation.frees, "")
    if name != FIRST_START:
        check_bystander(storage)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_any_step_leaves_the_old_or_the_new_and_blocks_nothing(injector, name):
    for step in injector.chosen_steps(name, KILL, is_whole=name in COMPOSITE):
        with injector.told(step):
            met = injector.meet(name, KILL, step)
            check_repair(name, met)
            check_goes_on(name, met)


@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_at_any_step_leaves_the_old_or_the_new_and_blocks_nothing(injector, name):
    """Nothing is undone that was done: it may come between the last step and the answer."""
    for step in injector.chosen_steps(name, CTRL_C, "fsync", "rename"):
        with injector.told(step):
            met = injector.meet(name, CTRL_C, step)
            check_repair(name, met)
            check_goes_on(name, met)


def test_after_a_killed_first_start_the_next_one_makes_the_right_modes(injector):
    for step in injector.chosen_steps(FIRST_START, KILL):
        with injector.told(step):
            there = injector.meet(FIRST_START, KILL, step).there
            there.open()
            assert stat.S_IMODE(there.data.stat().st_mode) == 0o700
            assert stat.S_IMODE((there.data / "secret_key").stat().st_mode) == 0o600
            assert stat.S_IMODE((there.pictures / "small").stat().st_mode) == 0o755


@each_error
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failing_call_raises_and_changes_nothing_or_does_not_matter(injector, name, fault):
    operation, is_whole = OPERATIONS[name], name in COMPOSITE and fault is FAILING_DISK
    for step in injector.chosen_steps(name, fault, is_whole=is_whole):
        with injector.told(step):
            met = injector.meet(name, fault, step)
            assert met.code in (fault.code, DONE)
            if step.kind != "unlink":  # what the disk does not let go of stays
                assert not met.there.temporary_files()
            if name != FIRST_START:
                state = operation.state(met.there.open())
                assert state == (operation.new if met.code == DONE else operation.old)
            check_repair(name, met)
            check_goes_on(name, met)


def test_an_exceeded_quota_raises_storage_full(injector):
    """At one step of each kind: no other test takes EDQUOT."""
    name = "adding an invited user"
    steps = {step.kind: step for step in injector.all_steps(name)}
    assert steps.keys() == CALLS.keys() - {"syncfs", "mkdir"}
    codes = [
        [injector.meet(name, fault, step).code for step in steps.values()]
        for fault in (USED_QUOTA, FULL_DISK)
    ]
    assert codes[0] == codes[1]
    assert set(codes[0]) == {FULL, DONE}


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NEVER_SYNCED))
def test_a_failed_fsync_is_not_retried(injector, name):
    """The kernel may have dropped what it could not write: a second fsync would succeed."""
    codes = []
    for step in injector.all_steps(name, "fsync"):
        with injector.told(step):
            met = injector.meet(name, FAILING_DISK, step)
            path, later = syncs_after_the_failed_one(met.log)
            assert path.startswith(str(met.folder)) and path not in later
            codes.append(met.code)
    assert codes.count(FAILED) >= 2  # that of a file, and that of its folder


# ---------------------------------------------------------------------------------------------
# The tests above can fail
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_steps_to_be_killed_at(injector, name):
    assert injector.all_steps(name, "rename")
    for fault in (KILL, FULL_DISK):
        sample = injector.chosen_steps(name, fault)
        assert sample and {*sample} <= {*injector.all_steps(name)}
        assert sample == injector.chosen_steps(name, fault)


def test_a_sample_depends_on_the_seed_alone(injector):
    injector.is_full_run = False
    samples = set()
    for seed in range(20261122, 20261132):
        injector.seed = seed
        samples.add(frozenset(injector.chosen_steps("adding a user", KILL)))
    assert len(samples) > 1
    injector.is_full_run = True
    all_steps = injector.all_steps("adding a user")
    assert injector.chosen_steps("adding a user", KILL) == all_steps
    assert frozenset(all_steps) not in samples


@pytest.fixture
def careless(request, injector) -> Iterator[Injector]:
    """The same operations, with another function in place of `disk.write_file`."""
    with Program("operations.py", request.param) as program:
        yield injector.with_program(program)


EDITING = "editing a user"


@pytest.mark.parametrize("careless", ["write_in_place"], indirect=True)
def test_a_record_written_in_place_fails_the_kill_tests(careless):
    with pytest.raises((AssertionError, StorageError)):
        for step in careless.all_steps(EDITING, "write"):
            check_goes_on(EDITING, careless.meet(EDITING, KILL, step))


@pytest.mark.parametrize("careless", ["write_and_leave"], indirect=True)
def test_a_temporary_file_left_behind_fails_the_tests(careless):
    [step] = careless.all_steps(EDITING, "rename")
    assert careless.meet(EDITING, FAILING_DISK, step).there.temporary_files()


@pytest.mark.parametrize("careless", ["write_and_try_again"], indirect=True)
def test_a_retried_fsync_fails_the_tests(careless):
    for step in careless.all_steps(EDITING, "fsync"):
        path, later = syncs_after_the_failed_one(careless.meet(EDITING, FAILING_DISK, step).log)
        assert path in later


def test_a_fault_that_is_not_reached_fails_the_tests(injector):
    [*_, last] = injector.all_steps(EDITING, "write")
    missing = dataclasses.replace(last, number=last.number + 1)
    for fault in (KILL, FAILING_DISK):
        with pytest.raises(AssertionError):
            injector.meet(EDITING, fault, missing)

"""Who calls most is in the logs, within bounds, and nobody's name is."""

from kbmesh_rpc.logs import tenant_hash
from kbmesh_rpc.talkers import Talkers, tell


def told(talkers: Talkers) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    tell(talkers, tenant_hash, lambda event, **fields: lines.append({"event": event, **fields}))
    return lines


def test_the_busiest_tenants_are_told_by_their_hashes() -> None:
    talkers = Talkers()
    for tenant, calls in (("acme", 30), ("globex", 20), ("initech", 1)):
        for call in range(calls):
            talkers.add(tenant, failed=call == 0, seconds=0.01)
    lines = told(talkers)
    assert [(line["tenant_hash"], line["calls"], line["failed"]) for line in lines] == [
        (tenant_hash("acme"), 30, 1),
        (tenant_hash("globex"), 20, 1),
        (tenant_hash("initech"), 1, 1),
    ]
    assert lines[0]["busy_milliseconds"] == 300
    assert "acme" not in str(lines)
    assert talkers.empty


def test_many_tenants_take_bounded_memory_and_do_not_hide_a_busy_one() -> None:
    talkers = Talkers(capacity=32)
    for number in range(5_000):
        talkers.add(f"tenant-{number}", failed=False, seconds=0)
        if number % 4 == 0:
            talkers.add("acme", failed=False, seconds=0)
    assert len(talkers.take(most=10_000)) == 32
    for number in range(5_000):
        talkers.add(f"tenant-{number}", failed=False, seconds=0)
        if number % 4 == 0:
            talkers.add("acme", failed=False, seconds=0)
    [busiest, *_] = told(talkers)
    assert busiest["tenant_hash"] == tenant_hash("acme")
    calls, over = busiest["calls"], busiest["may_be_over_by"]
    assert isinstance(calls, int)
    assert isinstance(over, int)
    assert calls - over <= 1250 <= calls

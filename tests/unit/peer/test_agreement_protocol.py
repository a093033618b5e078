"""Members agree on rosters: one successor for each, whatever the network does."""

import random
from dataclasses import replace

import pytest
from agreement_world import PATIENCE, Contention, World, electorate, signed
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tacit.peer.agreement.quorum import Invalid, Roster
from tacit.peer.agreement.statements import (
    Acceptance,
    Ballot,
    Decision,
    Endorsement,
    Promise,
    PromiseEvidence,
    Proposal,
    ProposalEvidence,
)

SILENCE = PATIENCE + 5  # in ticks, which are seconds here: enough to notice it
AGREEMENT = 150  # more than any agreement takes


def absent(world, *names):
    """Who is suspended according to each of these members."""
    return {name: set(world.roster(name).absent) for name in names}


def everyone(world, suspended):
    return dict.fromkeys(world.running, suspended)


def test_nothing_happens_while_all_are_heard():
    world = World(through_json=True)
    world.advance(10 * PATIENCE)
    assert world.decided == {}
    assert min(world.steps.values()) == 10 * PATIENCE


@pytest.mark.parametrize("count", [4, 5, 8])
def test_a_member_that_is_gone_is_suspended_and_the_others_go_on(count):
    world = World(count, through_json=True)
    world.advance(10)
    world.crash("n1")
    world.advance(10)
    waiting = max(world.steps.values())
    assert waiting < 15
    world.advance(SILENCE)
    assert absent(world, *world.running) == everyone(world, {"n1"})
    assert len(world.decided) == 1
    world.advance(20)
    assert all(step > waiting + 10 for name, step in world.steps.items() if name != "n1")


def test_it_is_not_suspended_before_the_patience_ends():
    world = World()
    world.advance(10)
    world.crash("n1")
    world.advance(PATIENCE - 3)
    world.start("n1")
    world.advance(2 * PATIENCE)
    assert world.decided == {}


def test_a_member_that_is_back_trains_with_the_model_of_the_others():
    world = World()
    world.crash("n1")
    world.advance(SILENCE + 50)
    assert world.steps["n1"] == 0
    world.start("n1")
    world.advance(AGREEMENT)
    assert absent(world, *world.names) == everyone(world, set())
    assert [one.name for one in world.decided[2].returned] == ["n1"]
    steps = world.steps.values()
    assert min(steps) > 100
    assert max(steps) - min(steps) <= 2


def test_of_a_divided_federation_only_the_majority_goes_on():
    world = World()
    world.advance(5)
    world.partition(["n0", "n1"], ["n2", "n3", "n4"])
    world.advance(10 * PATIENCE)
    assert absent(world, "n2", "n3", "n4") == {
        "n2": {"n0", "n1"}, "n3": {"n0", "n1"}, "n4": {"n0", "n1"},
    }  # fmt: skip
    assert absent(world, "n0", "n1") == {"n0": set(), "n1": set()}
    assert max(world.steps["n0"], world.steps["n1"]) < 10
    assert min(world.steps[name] for name in ("n2", "n3", "n4")) > 100
    world.heal()
    world.advance(AGREEMENT)
    assert absent(world, *world.names) == everyone(world, set())
    assert min(world.steps.values()) > 200


@pytest.mark.parametrize("groups", [
    (["n0", "n1"], ["n2", "n3"]),
    (["n0"], ["n1"], ["n2"], ["n3"]),
    (["n0", "n1"], ["n2"], ["n3"]),
])  # fmt: skip
def test_half_of_the_members_never_go_on(groups):
    world = World(4, smallest=2)
    world.advance(5)
    world.partition(*groups)
    world.advance(20 * PATIENCE)
    assert world.decided == {}
    assert max(world.steps.values()) < 10


def test_a_majority_of_those_who_are_left_is_not_enough():
    world = World(5, smallest=2)
    world.crash("n0")
    world.advance(SILENCE)
    world.crash("n1")
    world.advance(SILENCE)
    assert absent(world, *world.running) == everyone(world, {"n0", "n1"})
    world.crash("n2")
    world.advance(20 * PATIENCE)
    # Two of the three who were left agree, but they are not three of five.
    assert absent(world, "n3", "n4") == everyone(world, {"n0", "n1"})


def test_neighbours_that_vanish_together_do_not_stop_the_others():
    world = World(7)
    world.crash("n2")
    world.crash("n3")
    world.advance(SILENCE + 10)
    assert absent(world, *world.running) == everyone(world, {"n2", "n3"})


def test_members_that_could_not_protect_each_other_wait_and_say_why():
    world = World(5, smallest=4)
    world.crash("n0")
    world.crash("n1")
    world.advance(10 * PATIENCE)
    assert world.decided == {}
    assert {world.running[name].blocked for name in world.running} == {
        "only 3 members would be left"
    }


def test_a_member_that_was_stopped_itself_suspects_nobody():
    world = World()
    world.advance(5)
    member = world.running["n0"]
    world.now += 0.9 * PATIENCE
    member.tick(world.now, 5)
    world.now += 0.9 * PATIENCE
    member.tick(world.now, 5)
    assert member.sheet_for("n1").endorsements == ()
    for later in range(int(2 * PATIENCE)):
        member.tick(world.now + later, 5)
    assert len(member.sheet_for("n1").endorsements) == 4


def test_a_finished_member_is_not_missed():
    world = World()
    world.running["n1"].tick(0.5, 9, finished=True)
    for name in ("n0", "n2", "n3", "n4"):
        world.running[name].receive("n1", world.running["n1"].sheet_for(name), 0.5)
    world.crash("n1")
    world.advance(10 * PATIENCE)
    assert world.decided == {}
    assert world.running["n0"].presence.has_finished("n1")


def test_a_vote_survives_a_restart():
    """A member that has accepted one change keeps it, and a proposer must propose it again."""
    world = World()
    world.crash("n1")
    world.advance(PATIENCE - 1)
    while world.disk["n2"].acceptance is None and not world.decided:
        world.advance(1)
    accepted = world.disk["n2"].acceptance
    if accepted is not None:
        world.crash("n2")
        world.start("n2")
        assert world.running["n2"].sheet_for("n3").acceptance == accepted
    world.advance(AGREEMENT)
    assert absent(world, *world.running) == everyone(world, {"n1"})


@pytest.mark.parametrize("seed", range(40))
def test_random_faults_never_split_the_federation_and_lose_no_state(seed):
    """Kill, stop, partition, rejoin, power failures and losses; then all is repaired."""
    chance = random.Random(seed)
    world = World(chance.choice([4, 5, 5, 7]), seed, loss=chance.choice([0, 0.2, 0.5]))
    steps = dict(world.steps)
    for _ in range(chance.randrange(4, 10)):
        for _ in range(chance.randrange(1, 3)):
            name = chance.choice(world.names)
            fault = chance.choice(["kill", "stop", "rejoin", "partition", "heal", "rejoin"])
            if fault == "kill":
                world.crash(name)
            elif fault == "stop" and name in world.running:
                world.stopped.add(name)
            elif fault == "rejoin":
                world.stopped.discard(name)
                if name not in world.running:
                    world.start(name)
            elif fault == "partition":
                cut = chance.randrange(1, len(world.names))
                shuffled = chance.sample(world.names, len(world.names))
                world.partition(shuffled[:cut], shuffled[cut:])
            else:
                world.heal()
        unlucky = chance.sample(world.names, chance.choice([0, 0, 1]))
        world.advance(chance.randrange(1, 45), unlucky)
        # A member without a model gets that of the others, which is newer.
        for name, step in world.steps.items():
            assert step is None or steps[name] is None or step >= steps[name]
            steps[name] = step
    epochs = {name: votes.decision.change.epoch if votes.decision else 0
              for name, votes in world.disk.items()}  # fmt: skip
    furthest = max(step or 0 for step in world.steps.values())
    world.heal()
    world.loss = 0
    world.stopped.clear()
    for name in world.names:
        if name not in world.running:
            world.start(name)
    world.advance(AGREEMENT)
    assert absent(world, *world.names) == everyone(world, set())
    assert len({world.roster(name).digest for name in world.names}) == 1
    assert all(world.roster(name).epoch >= epochs[name] for name in world.names)
    assert min(world.steps.values()) > furthest


def test_members_that_propose_at_the_same_time_decide_the_same():
    """Late, lost and repeated sheets in any order, and restarts, while all propose differently."""
    decisions = 0
    for seed in range(150):
        contention = Contention(random.Random(seed))
        for _ in range(12):
            contention.act()
        decisions += len(contention.decided)
    assert decisions > 15


class Divided(RuleBasedStateMachine):
    """Hypothesis chooses the faults, and looks for the shortest way to two rosters."""

    @initialize(count=st.sampled_from([3, 4, 5, 6]), seed=st.integers(0, 3),
                loss=st.sampled_from([0.0, 0.4]))  # fmt: skip
    def begin(self, count, seed, loss):
        self.world = World(count, seed, smallest=2, loss=loss)

    @rule(member=st.integers(0, 5))
    def crash(self, member):
        self.world.crash(self.world.names[member % len(self.world.names)])

    @rule(member=st.integers(0, 5))
    def start(self, member):
        name = self.world.names[member % len(self.world.names)]
        if name not in self.world.running:
            self.world.start(name)

    @rule(member=st.integers(0, 5))
    def stop_or_continue(self, member):
        name = self.world.names[member % len(self.world.names)]
        if name in self.world.running:
            self.world.stopped ^= {name}

    @rule(sides=st.lists(st.integers(0, 2), min_size=6, max_size=6))
    def partition(self, sides):
        pairs = list(zip(self.world.names, sides, strict=False))
        self.world.partition(*({name for name, at in pairs if at == side} for side in range(3)))

    @rule()
    def heal(self):
        self.world.heal()

    @rule(ticks=st.integers(1, 40), unlucky=st.sets(st.integers(0, 5), max_size=2))
    def advance(self, ticks, unlucky):
        names = [self.world.names[at % len(self.world.names)] for at in unlucky]
        newest = max(self.world.decided, default=0)
        able = any(
            self.world.electorate.is_majority(name for name in group if self.world.active(name))
            for group in self.world.groups
        )
        self.world.flying = [one for one in self.world.flying if able]
        self.world.advance(ticks, names)
        if not able:
            assert max(self.world.decided, default=0) == newest, "a minority went on alone"

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def rosters_follow_on_each_other(self):
        decided = self.world.decided
        for epoch, change in decided.items():
            if epoch - 1 in decided:
                assert change.previous == decided[epoch - 1].digest

    def teardown(self):
        """A majority that is connected goes on, once time passes."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.loss = 0
        world.heal()
        world.stopped.clear()
        half = len(world.names) // 2 + 1
        for name in world.names[:half]:
            if name not in world.running:
                world.start(name)
        world.advance(AGREEMENT)
        gone = {name for name in world.names if name not in world.running}
        if len(world.names) - len(gone) >= 2:
            assert absent(world, *world.running) == everyone(world, gone)


TestDivided = Divided.TestCase
TestDivided.settings = settings(
    max_examples=30, stateful_step_count=12, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


# What a liar might send.

MEMBERS = ["n0", "n1", "n2", "n3", "n4"]
VOTERS = electorate(MEMBERS)
ROSTER = Roster(1, 0, "base")


def endorsements(subject, names, word="silent", roster="base"):
    statement = Endorsement(roster, subject, word, 7)
    return tuple(signed(name, statement) for name in names)


def change(subject="n1"):
    return VOTERS.make_change(ROSTER, [subject], [], 1000, 7)


def decision(names, wanted=None, ballot=Ballot(1, "n0")):  # noqa: B008
    wanted = wanted or change()
    vote = Acceptance("base", ballot, wanted)
    return Decision(wanted, tuple(signed(name, vote) for name in names))


def test_a_change_needs_a_majority_of_all_members_and_of_the_neighbours():
    VOTERS.check_change(ROSTER, change(), endorsements("n1", ["n0", "n2", "n3"]))
    for names in (["n0", "n2"], ["n0", "n3", "n4"], ["n0", "n0", "n0", "n2"], []):
        with pytest.raises(Invalid, match="too few"):
            VOTERS.check_change(ROSTER, change(), endorsements("n1", names))
    with pytest.raises(Invalid, match="too few"):
        VOTERS.check_change(ROSTER, change(), endorsements("n2", MEMBERS))
    with pytest.raises(Invalid, match="too few"):
        VOTERS.check_change(ROSTER, change(), endorsements("n1", MEMBERS, "back"))


def test_forged_and_old_endorsements_do_not_count():
    forged = tuple(replace(one, signer="n4") for one in endorsements("n1", ["n0"]))
    with pytest.raises(Invalid, match="signature that is not of n4"):
        VOTERS.check_change(ROSTER, change(), forged + endorsements("n1", ["n0", "n2"]))
    with pytest.raises(Invalid, match="another roster"):
        VOTERS.check_change(ROSTER, change(), endorsements("n1", MEMBERS, roster="older"))
    with pytest.raises(Invalid, match="not a member"):
        VOTERS.check_change(ROSTER, change(), endorsements("n1", ["n0", "n2", "x"]))


def test_a_decision_needs_the_votes_of_a_majority_in_one_ballot():
    VOTERS.check_decision(1, decision(["n0", "n2", "n3"]))
    for wrong, why in [
        (decision(["n0", "n2"]), "without the votes"),
        (decision(["n0", "n0", "n2"]), "without the votes"),
        (decision([]), "several ballots"),
        (decision(["n0", "x", "y"]), "not a member"),
        (replace(decision(MEMBERS), change=change("n2")), "another change"),
        (decision(MEMBERS, replace(change(), digest="other")), "computes otherwise"),
        (decision(MEMBERS, replace(change(), generation=2)), "generation 2"),
    ]:
        with pytest.raises(Invalid, match=why):
            VOTERS.check_decision(1, wrong)
    mixed = (
        decision(["n0", "n2"]).acceptances + decision(["n3"], ballot=Ballot(2, "n2")).acceptances
    )
    with pytest.raises(Invalid, match="several ballots"):
        VOTERS.check_decision(1, Decision(change(), mixed))


def promises(ballot, names, accepted=None, accepted_in=None, evidence=()):
    statement = Promise("base", ballot, accepted_in, accepted)
    return tuple(PromiseEvidence(signed(name, statement), evidence) for name in names)


def test_a_proposal_must_keep_what_may_be_decided():
    ballot, earlier, others = (
        Ballot(2, "n0"),
        Ballot(1, "n2"),
        endorsements("n1", ["n0", "n2", "n3"]),
    )
    about_n4 = endorsements("n4", ["n0", "n2", "n3"])
    kept = promises(ballot, ["n2"], change("n1"), earlier, others)
    free = promises(ballot, ["n0", "n3"])

    def check(wanted, evidence, given, proposer="n0"):
        proposal = signed(proposer, Proposal("base", ballot, wanted))
        VOTERS.check_proposal(ROSTER, ProposalEvidence(proposal, evidence, given))

    check(change("n1"), others, kept + free)
    with pytest.raises(Invalid, match="drops what may be decided"):
        check(change("n4"), about_n4, kept + free)
    with pytest.raises(Invalid, match="majority of all members"):
        check(change("n1"), others, free)
    with pytest.raises(Invalid, match="another ballot"):
        check(change("n1"), others, free + promises(earlier, ["n2"]))
    with pytest.raises(Invalid, match="another member's ballot"):
        check(change("n1"), others, kept + free, proposer="n3")
    # One member cannot force a change on all others by saying that it has accepted it.
    invented = promises(ballot, ["n2"], change("n4"), earlier, endorsements("n4", ["n2"]))
    with pytest.raises(Invalid, match="too few"):
        check(change("n4"), endorsements("n4", ["n2"]), invented + free)


def test_a_promise_is_kept_over_a_restart():
    """A member that takes part in ballot 5 accepts nothing of ballot 4, whenever that arrives."""
    world, early, late = World(), Ballot(4, "n0"), Ballot(5, "n3")
    proposal = signed("n0", Proposal("base", early, change()))
    others = endorsements("n1", ["n0", "n2", "n3"])
    given = promises(early, ["n0", "n3", "n4"])
    tardy = replace(
        world.running["n0"].sheet_for("n2"), proposal=ProposalEvidence(proposal, others, given)
    )
    (later,) = promises(late, ["n3"])
    world.running["n2"].receive("n3", replace(tardy, proposal=None, promise=later), 0.0)
    world._after_input("n2")
    for _ in range(2):
        member = world.running["n2"]
        assert member.sheet_for("n0").promise.promise.statement.ballot == late
        member.receive("n0", tardy, 0.0)
        assert member.votes.acceptance is None
        world.crash("n2")
        world.start("n2")
    # Without the promise it would have accepted.
    world.running["n4"].receive("n0", tardy, 0.0)
    assert world.running["n4"].votes.acceptance.statement.change == change()


def test_one_liar_cannot_suspend_a_member():
    world = World()
    liar = world.running["n0"]
    for other in ("n1", "n2", "n3", "n4"):
        sheet = replace(
            liar.sheet_for(other), endorsements=endorsements("n3", ["n0"]),
        )  # fmt: skip
        world.running[other].receive("n0", sheet, world.now)
    world.advance(5 * PATIENCE)
    assert world.decided == {}


def test_floods_of_statements_are_refused_before_they_are_verified():
    world = World()
    many = endorsements("n3", ["n0"]) * 1000
    with pytest.raises(Invalid, match="1000 statements of 5 members"):
        world.running["n1"].receive(
            "n0", replace(world.running["n0"].sheet_for("n1"), endorsements=many), 0.0
        )
    with pytest.raises(Invalid, match="1000 statements"):
        VOTERS.check_change(ROSTER, change("n3"), many)


def test_two_votes_in_one_ballot_are_named():
    world = World()
    one, ballot = world.running["n1"], Ballot(1, "n0")
    sheets = [
        replace(
            world.running["n0"].sheet_for("n1"),
            acceptance=signed("n0", Acceptance("base", ballot, change(subject))),
        )
        for subject in ("n2", "n3")
    ]
    one.receive("n0", sheets[0], 0.0)
    with pytest.raises(Invalid, match="two votes of n0"):
        one.receive("n0", sheets[1], 0.0)

"""Checkpoints, transcripts and engines where the graph changes."""

from dataclasses import replace

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit import Absence, Matchings, Participation, Phases, Setting, Simulation, Topology
from tacit.algorithms.algorithm import tensors_of
from tacit.engines.group import Hosted, ProcessGroup
from tacit.record import checkpoint as checkpoints, transcript_files
from tacit.record.transcript import Keep, Transcript

N, P = 6, 3
RING = Topology.ring(N).mixing("metropolis")
AWAY = Participation(share=0.7, absences=(Absence(2, 3, 9),))
MATCHINGS = Matchings(Topology.torus(2, 3))
PHASES = Phases([(RING, 3), (Topology.star(N).mixing("metropolis"), 2)])
DIRECTED = Phases(
    [
        (Topology.directed_ring(N).mixing("out-degree"), 4),
        (Topology.random_directed(N, 0.3, seed=2).mixing("out-degree"), 3),
    ]
)
CASES = {
    "matchings": (tacit.LPPA(lr=0.05, fresh=True, momentum=0.5), MATCHINGS, None),
    "phases": (tacit.DPSGD(lr=0.05, optimizer="adam"), PHASES, None),
    "absent": (tacit.DSGT(lr=0.05), PHASES, AWAY),
    "directed": (tacit.PushSum(lr=0.05), DIRECTED, AWAY),
    "late": (tacit.DSG(lr=0.05), None, Participation(delay=4)),
    "late, once": (tacit.PushSum(lr=0.05), None, Participation(delay=4)),
    "late, noise": (tacit.MDSG(lr=0.05), None, Participation(delay=2, stragglers=(0, 3))),
}


@pytest.fixture
def setting_of():
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(N, 20, P, generator=generator), torch.randn(N, 20, generator=generator)
    task = tacit.Task(
        torch.randn(N, P, generator=generator),
        list(zip(*data, strict=True)),
        loss=lambda theta, x, y: (x @ theta - y).square().mean(),
        batch_size=4,
    )

    def make(case):
        algorithm, schedule, participation = CASES[case]
        graph = RING if schedule is None else schedule.union
        return Setting(
            algorithm, task, graph, 5, gradients="stacked", schedule=schedule,
            participation=participation,
        )  # fmt: skip

    return make


def advance(simulation, steps):
    for _ in range(steps):
        simulation.step()
    return simulation


@pytest.mark.parametrize("case", CASES)
def test_a_run_resumes_in_the_middle_of_a_schedule_to_the_same_bits(case, setting_of, tmp_path):
    setting = setting_of(case)
    whole = Simulation(setting)
    whole.start()
    advance(whole, 7)
    checkpoints.save(tmp_path, whole.checkpoint("x"))
    advance(whole, 9)

    loaded = checkpoints.load_latest(tmp_path, setting.algorithm, "x")
    resumed = Simulation(setting)
    resumed.restore(loaded)
    advance(resumed, 9)
    one, other = tensors_of(whole.state), tensors_of(resumed.state)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.net.bytes_sent == resumed.net.bytes_sent
    if case.startswith("late"):
        # Without the late rows it would be another run.
        assert loaded.late_rows
        forgetful = Simulation(setting)
        zeros = {name: torch.zeros_like(rows) for name, rows in loaded.late_rows.items()}
        forgetful.restore(replace(loaded, late_rows=zeros))
        assert not torch.equal(advance(forgetful, 9).state.theta, whole.state.theta)


@pytest.mark.parametrize("case", CASES)
def test_a_transcript_has_the_messages_of_the_edges_in_use(case, setting_of, tmp_path):
    setting = setting_of(case)
    transcript = Transcript(Keep())
    simulation = Simulation(setting, transcript=transcript)
    simulation.start()
    advance(simulation, 8)
    plain = Simulation(setting)
    plain.start()
    assert torch.equal(advance(plain, 8).state.theta, simulation.state.theta)
    world = setting.world
    for message in transcript.messages:
        graph = world.at(max(0, message.tick - 1)).graph
        edges = [tuple(edge) for edge in graph.edges.tolist()]
        assert transcript.edges_at(message.tick) == edges
        assert message.source.tolist() == sorted({source for source, _ in edges})
    transcript_files.save(transcript, tmp_path)
    again, _ = transcript_files.load(tmp_path)
    assert again.changes == transcript.changes
    assert [again.edges_at(t) for t in range(9)] == [transcript.edges_at(t) for t in range(9)]


def test_a_fixed_graph_keeps_the_transcript_it_had(setting_of, tmp_path):
    run = tacit.run(setting_of("late").task, tacit.DSG(lr=0.1), RING, steps=2, transcript=True)
    assert run.transcript.changes == {}
    text = transcript_files.save(run.transcript, tmp_path).read_text()
    assert "changes" not in text


def test_ranks_are_refused(setting_of):
    class TwoRanks(ProcessGroup):
        def run_on_first(self, function):
            return function()

    setting = setting_of("matchings")
    hosted = Hosted.of(TwoRanks(0, 2), setting.graph)
    message = misuse_message(Simulation, setting, hosted=hosted)
    assert_mentions(message, "random matchings", "torchrun")


def test_a_participation_of_another_kind_is_refused(setting_of):
    task = setting_of("late").task
    message = misuse_message(tacit.run, task, tacit.DSG(lr=0.1), RING, steps=1, participation=0.5)
    assert_mentions(message, "0.5", "tacit.Participation")

"""Runs saved, read back, and turned into modules."""

import io
import json
import re

import pytest
import torch
from rich.console import Console
from torch import nn

import tacit
from tacit.cli.audit_tables import print_audit
from tacit.core.errors import Misuse
from tacit.report.report import write_report


class Tied(nn.Module):
    """Frozen, tied and dropped parameters, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4, bias=False)
        self.decode.weight = self.embed.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)
        self.register_buffer("shift", torch.full((4,), 0.25))

    def forward(self, x):
        x = torch.tanh(self.embed(x)) + self.shift
        return self.head(self.dropout(self.decode(self.frozen(x))))


def simulate(module, transcript=False, **options):
    draw = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(12, 4, generator=draw), torch.randint(3, (12,), generator=draw))
        for _ in range(3)
    ]
    task = tacit.Task(module, parts, batch_size=4)
    graph = tacit.Topology.ring(3).mixing("metropolis")
    algorithm = tacit.DSGT(lr=0.1)
    return tacit.run(task, algorithm, graph, steps=6, transcript=transcript, **options)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return Tied()


@pytest.fixture(scope="module")
def run(model):
    return simulate(model, transcript=True)


X = torch.linspace(-1, 1, 20).reshape(5, 4)


@pytest.mark.parametrize("client", [0, 2, "average"])
def test_the_module_computes_what_the_model_does(run, model, client):
    theta = run.theta.mean(0) if client == "average" else run.theta[client]
    module = run.module(client)
    assert torch.equal(module(X), run.setting.task.loss.flat(theta, X))
    assert not torch.equal(module(X), model.eval()(X))
    # Usable and trainable as the original: no keys, tied, frozen as before.
    assert type(module.dropout) is nn.Dropout
    assert not module.training
    assert module.decode.weight is module.embed.weight
    assert torch.equal(module.frozen.weight, model.frozen.weight)
    assert [p.requires_grad for p in module.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    module.train()
    assert not torch.equal(module(X), module(X))


def test_the_run_keeps_its_own_copy(run):
    before = run.theta.clone()
    with torch.no_grad():
        for parameter in run.module(0).parameters():
            parameter.zero_()
    assert torch.equal(run.theta, before)
    assert not torch.equal(run.module(0)(X), torch.zeros(5, 3))


def test_adapters_stay_adapters_and_can_be_merged():
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    run = simulate(tacit.models.lora(base, rank=2))
    module = run.module(1)
    assert torch.equal(module(X), run.setting.task.loss.flat(run.theta[1], X))
    torch.testing.assert_close(tacit.models.merge_lora(module)(X), module(X))
    assert not torch.allclose(base(X), module(X))


def test_a_saved_run_is_the_run(run, model, tmp_path):
    saved = tacit.load(run.save(tmp_path / "run"))
    assert torch.equal(saved.theta, run.theta)
    assert set(saved.state) == {"theta", "gamma", "grad"}
    assert torch.equal(saved.state["gamma"], run.state.gamma)
    assert saved.history.to_jsonl() == run.history.to_jsonl()
    assert saved.step == 6
    assert saved.config["algorithm"] == {"name": "dsgt", "lr": 0.1}
    messages = run.transcript.messages
    assert len(saved.transcript.messages) == len(messages)
    assert torch.equal(saved.transcript.messages[3].rows, messages[3].rows)
    state = saved.state_dict(1)
    expected = run.module(1).state_dict()
    assert sorted(state) == sorted(expected)
    assert all(torch.equal(state[name], expected[name]) for name in state)
    torch.manual_seed(99)
    assert torch.equal(saved.module(1, module=Tied())(X), run.module(1)(X))
    assert "SavedRun" in repr(saved)


def test_what_cannot_be_had_is_said(run, tmp_path):
    folder = run.save(tmp_path / "run")
    with pytest.raises(Misuse, match="not empty"):
        run.save(folder)
    saved = tacit.load(folder)
    with pytest.raises(Misuse, match="made in Python"):
        saved.module(0)
    with pytest.raises(Misuse, match="does not fit a Linear"):
        saved.module(0, module=nn.Linear(4, 3))
    for client in (3, -1, "first", True, 0.0):
        with pytest.raises(Misuse, match="number from 0 to 2"):
            run.module(client)
    with pytest.raises(Misuse, match="is not a run folder"):
        tacit.load(tmp_path)
    (folder / "model.json").write_text("{}")
    with pytest.raises(Misuse, match="unknown format"):
        tacit.load(folder)
    (folder / "model.json").write_text('{"format": "tacit-model-1", "parameters": 3}')
    with pytest.raises(Misuse, match="cannot be read"):
        tacit.load(folder)
    (folder / "model.json").unlink()
    with pytest.raises(Misuse, match=r"no model\.json"):
        tacit.load(folder).state_dict(0)
    next((folder / "checkpoints").glob("*")).write_bytes(b"nothing")
    with pytest.raises(Misuse, match="cannot be read"):
        tacit.load(folder)


def test_a_loss_has_no_module(tmp_path):
    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=2)
    with pytest.raises(Misuse, match="not from a module"):
        run.module(0)
    saved = tacit.load(run.save(tmp_path / "run"))
    assert saved.layout is None
    assert saved.transcript is None
    assert torch.equal(saved.theta, run.theta)


def test_shared_rows_of_a_private_run_are_saved(tmp_path):
    parts = [(torch.randn(40, 4), torch.randint(3, (40,))) for _ in range(3)]
    task = tacit.Task(nn.Linear(4, 3), parts, batch_size=4)
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(
        task,
        tacit.PrivateSGD(lr=0.1),
        graph,
        steps=2,
        privacy=tacit.Privacy(epsilon=8.0, delta=1e-4),
    )
    saved = tacit.load(run.save(tmp_path / "run"))
    assert torch.equal(saved.theta, run.theta)
    assert 0 < saved.summary["privacy"]["spent"] <= 8


# --- clients' names, and audits ---


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    draw, place = torch.Generator().manual_seed(0), tmp_path_factory.mktemp("sites")
    for name in ("north", "south hospital", "clinic-of-the-lake-district"):
        rows = torch.randn(16, 2, generator=draw).tolist()
        lines = [f"{a},{b},{'ill' if a > 0 else 'well'}\n" for a, b in rows]
        (place / f"{name}.csv").write_text("a,b,outcome\n" + "".join(lines))
    dataset = tacit.data.from_tables(str(place / "{client}.csv"), label="outcome", test=0.25)
    task = tacit.Task(nn.Linear(2, 2), dataset, batch_size=4, init="same")
    graph = tacit.Topology.ring(3).mixing("metropolis")
    return tacit.run(task, tacit.DSGT(lr=0.5), graph, steps=20)


def test_clients_names_are_in_the_report_and_choose_models(named, tmp_path):
    folder = named.save(tmp_path / "run")
    page = write_report([folder], tmp_path / "page.html", title="A run").read_text()
    clients = page.split("Each client")[1].split("</table>")[0]
    rows = re.findall("<th scope=.row.*?</th>", clients)
    names = {"north", "south hospital", "clinic-of-the-lake-district"}
    assert {re.sub("<[^>]*>", "", row) for row in rows} == names
    saved = tacit.load(folder).state_dict("south hospital")
    assert torch.equal(saved["weight"], named.module(2).state_dict()["weight"])


def test_reports_of_a_saved_run_start_with_its_saved_audit(named, tmp_path):
    folder = named.save(tmp_path / "run")
    audit = tacit.audit(
        named, "curious(clinic-of-the-lake-district)", victim="north", attacks=False
    )
    page = tacit.save_audit(audit, folder)
    assert page == folder / "report.html"
    assert json.loads((folder / "audit.json").read_text())["names"][2] == "south hospital"
    again = write_report([folder], tmp_path / "page.html", title="A run").read_text()
    for text in (page.read_text(), again):
        answer = text.index(audit.answer.verdict)
        assert answer < text.index(">Over the rounds</h2>") < text.index(">Audit: verdict</h2>")
    alone = tacit.save_audit(audit, tmp_path / "alone").read_text()
    assert audit.answer.verdict in alone
    assert "Over the rounds" not in alone


def test_headers_in_a_terminal_of_80_columns_are_whole_with_long_names(named):
    adversary = "curious(clinic-of-the-lake-district)"
    audit = tacit.audit(named, adversary, victim="south hospital", attacks=False)
    console = Console(width=80, file=io.StringIO())
    print_audit(audit, console)
    lines = console.file.getvalue().splitlines()
    header = next(line for line in lines if "verdict" in line)
    assert header.endswith("┃")
    names = header.replace("┃", " ").split()
    assert {"adversary", "of", "verdict", "gradient", "diff.", "sum", "model", "bound"} <= {*names}


def test_an_audit_is_not_saved_with_another_run(named, run, tmp_path):
    audit = tacit.audit(
        named, "curious(clinic-of-the-lake-district)", victim="north", attacks=False
    )
    folder = run.save(tmp_path / "run")
    with pytest.raises(Misuse, match="another one: its parameters"):
        tacit.save_audit(audit, folder)
    assert not (folder / "audit.json").exists()
    with pytest.raises(Misuse, match="audit is a Run"):
        tacit.save_audit(run, folder)
    with pytest.raises(Misuse, match="folder is a int"):
        tacit.save_audit(audit, 3)

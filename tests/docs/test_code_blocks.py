"""Every Python and shell block of the documentation runs, or says in its title why it does not."""

import pytest
from code_blocks import ROOT, PageRunner, code_blocks, compare_output, pages

# Pages that take too long for the quick suite.
SLOW = {
    "README.md",
    "docs/guides/experiments.md",
    "docs/guides/own-model.md",
    "docs/tutorials/first-private-run.md",
    "docs/tutorials/reading-an-audit.md",
    "docs/tutorials/three-hospitals.md",
}


def page_parameters():
    """Each page with its blocks; if most are quick, the long ones apart."""
    for page in pages():
        name = str(page.relative_to(ROOT))
        blocks = code_blocks(page)
        short = [block for block in blocks if not block.is_long]
        if name in SLOW:
            yield pytest.param(blocks, id=f"{name}, long blocks too")
            continue
        if any(block.runs or block.is_file for block in short):
            yield pytest.param(short, id=name, marks=pytest.mark.quick)
        if len(short) < len(blocks):
            long = [block for block in blocks if block.is_long]
            yield pytest.param(long, id=f"{name}, long blocks")


@pytest.mark.parametrize("blocks", list(page_parameters()))
def test_the_blocks_of_a_page_run_in_order(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runner = PageRunner(tmp_path)
    for block in blocks:
        runner.run(block)


@pytest.mark.quick
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_or_its_title_says_why_not(page):
    for block in code_blocks(page):
        block.check()


def blocks_in(folder, text):
    path = folder / "page.md"
    path.write_text(text)
    return code_blocks(path)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("title", "shown", "printed"),
    [
        ("output", "accuracy 90.1 %", "accuracy 90.4 %\n"),
        ("output", "first 1\n…\nReport: x", "first 1\nmore\nand more\nReport: x\n"),
        ("output", "┃ a ┃ 1 ┃\n└───┘", "a   1\n"),
        ("output (numbers vary)", "AUC 0.5", "AUC 0.9\n"),
    ],
)
def test_output_is_compared_by_words_and_roughly_by_numbers(tmp_path, title, shown, printed):
    (block,) = blocks_in(tmp_path, f'```text title="{title}"\n{shown}\n```\n')
    compare_output(block, printed)


@pytest.mark.quick
@pytest.mark.parametrize("printed", ["accuracy 50.0 %", "loss 90.1 %", "accuracy 90.1 %\nmore", ""])
def test_other_output_is_noticed(tmp_path, printed):
    (block,) = blocks_in(tmp_path, '```text title="output"\naccuracy 90.1 %\n```\n')
    with pytest.raises(AssertionError):
        compare_output(block, printed)


@pytest.mark.quick
def test_blocks_in_lists_and_their_titles_are_found(tmp_path):
    indented = '1. First:\n\n    ```bash title="needs a GPU"\n    tacit run\n    ```\n'
    first, second = blocks_in(tmp_path, f"{indented}\n```python\nx = 1\n```\n")
    assert (first.language, first.title, first.text) == ("bash", "needs a GPU", "tacit run\n")
    assert not first.runs
    assert second.runs
    assert second.text == "x = 1\n"


@pytest.mark.quick
def test_an_unknown_title_is_an_error(tmp_path):
    (block,) = blocks_in(tmp_path, '```bash title="skip this"\ntacit run\n```\n')
    with pytest.raises(AssertionError, match="skip this"):
        block.check()

"""Every Python and shell block of the documentation runs, or says in its title why it does not."""

import pytest
from code_blocks import PageRunner, ROOT, code_blocks, compare_output, pages

# Pages that take too long for the quick suite.
SLOW = {"docs/tutorials/three-hospitals.md", "docs/tutorials/reading-an-audit.md"}


def page_parameters():
    for page in pages():
        if any(block.runs or block.is_file for block in code_blocks(page)):
            name = str(page.relative_to(ROOT))
            marks = [pytest.mark.slow] if name in SLOW else []
            yield pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", list(page_parameters()))
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runner = PageRunner(tmp_path)
    for block in code_blocks(page):
        runner.run(block)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_or_its_title_says_why_not(page):
    for block in code_blocks(page):
        block.check()


def block_with(text, tmp_path, title="output"):
    page = ROOT / "README.md"
    (block,) = [
        block
        for block in code_blocks_of(f'```text title="{title}"\n{text}\n```\n', tmp_path)
    ]
    return block.__class__(page, block.line, block.language, block.title, block.text)


def code_blocks_of(text, folder):
    path = folder / "page.md"
    path.write_text(text)
    return code_blocks(path)


def test_output_is_compared_by_words_and_roughly_by_numbers(tmp_path):
    compare_output(block_with("accuracy 90.1 %\n…\nReport: x", tmp_path), "accuracy 90.4 %\nmore\nReport: x\n")
    compare_output(block_with("AUC 0.5", tmp_path, "output (numbers vary)"), "AUC 0.9\n")
    for shown, printed in (
        ("accuracy 90.1 %", "accuracy 50.0 %"),
        ("accuracy 90.1 %", "loss 90.1 %"),
        ("accuracy 90.1 %", "accuracy 90.1 %\nand more"),
    ):
        with pytest.raises(AssertionError):
            compare_output(block_with(shown, tmp_path), printed)


def test_blocks_in_lists_and_their_titles_are_found(tmp_path):
    text = '1. First:\n\n    ```bash title="needs a GPU"\n    tacit run\n    ```\n\n```python\nx = 1\n```\n'
    first, second = code_blocks_of(text, tmp_path)
    assert (first.language, first.title, first.text) == ("bash", "needs a GPU", "tacit run\n")
    assert not first.runs
    assert second.runs
    assert second.text == "x = 1\n"

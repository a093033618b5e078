"""`--set run.prg=chacha20` from the command line."""


def test_a_run_with_keystreams_resumes_to_the_same_bits(
    tacit_here, config, tmp_path, history, newest
):
    for out, options in (("philox", ()), ("keys", ("--set", "run.prg=chacha20"))):
        answer = tacit_here("run", config, "--out", out, *options)
        assert answer.code == 0, answer.err
    records, tensors = history("keys"), newest("keys")
    assert tensors != newest("philox")
    assert 'prg = "chacha20"' in (tmp_path / "keys" / "config.toml").read_text()
    max((tmp_path / "keys" / "checkpoints").iterdir()).unlink()
    answer = tacit_here("run", "keys/config.toml", "--out", "keys", "--resume")
    assert answer.code == 0, answer.err
    assert "resumed after iteration 5" in answer.err
    assert (history("keys"), newest("keys")) == (records, tensors)
    answer = tacit_here("run", config, "--out", "keys", "--resume")
    assert answer.code == 2
    assert "another configuration" in answer.err


def test_another_generator_is_refused(tacit_here, config, contents):
    before = contents()
    answer = tacit_here("run", config, "--out", "out", "--set", "run.prg=aes")
    assert answer.code == 2
    assert "run.prg = 'aes'" in answer.err
    assert "'philox' or 'chacha20'" in answer.err
    assert contents() == before




def test_a_setting_may_be_called_on(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("objective: {name: rspc, on: both}\n")
    assert read_run(tmp_path / "run").config["objective"] == {"name": "rspc", "on": "both"}

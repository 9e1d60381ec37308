"""Evaluators that several tests use."""

READS_STDOUT = """
    import json, sys
    asked = json.load(sys.stdin)
    print(json.dumps({"score": float(open(asked["trial"]["stdout"]).read())}))
"""
"""Scores the number that the candidate's program prints."""

READS_OUT = """
    import json, pathlib, sys
    asked = json.load(sys.stdin)
    answer = (pathlib.Path(asked["trial"]["out"]) / "answer.txt").read_text()
    expected = pathlib.Path("secret.txt").read_text()
    print(json.dumps({"score": 1.0 if answer == expected else 0.0}))
"""
"""Scores whether the answer that the candidate left is the secret one."""

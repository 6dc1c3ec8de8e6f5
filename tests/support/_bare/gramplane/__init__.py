__path__ = [str(__import__("pathlib").Path(__file__).resolve().parents[4])]

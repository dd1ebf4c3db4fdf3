"""The names of the files in the folder of a run."""

CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
WEIGHTS = "weights.safetensors"
METRICS = "metrics.jsonl"
LOCK = ".lock"

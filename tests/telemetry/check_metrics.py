"""Has the parser of prometheus_client, which is strict about OpenMetrics, read what the program named by the argument prints."""
import subprocess
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

text = subprocess.run([sys.argv[1]], check=True, stdout=subprocess.PIPE, text=True).stdout
families = {family.name: family for family in text_string_to_metric_families(text)}
types = {name: family.type for name, family in families.items()}
assert types["vccl_delivered_bytes"] == "counter" and families["vccl_delivered_bytes"].unit == "bytes", types
assert types["vccl_lane_condition"] == "stateset" and types["vccl_gap_seconds"] == "histogram" and types["vccl_running"] == "gauge", types
assert all(family.documentation.endswith(".") or "(" in family.documentation for family in families.values())


def values(family, **wanted):
    return [s.value for s in families[family].samples if wanted.items() <= s.labels.items()]


assert values("vccl_delivered_bytes", end="receiver") == [6 << 20, 4 << 20]
assert values("vccl_delivered_chunks", end="sender", lane="0", port='mlx5_0:1 "left"', job="train\\1") == [6]
assert values("vccl_lane_failures", cause="retries") == [1, 1]
assert values("vccl_failovers", end="sender") == [1]
assert values("vccl_replayed_chunks", end="sender") == [4]
assert values("vccl_lane_condition", end="sender", lane="0", vccl_lane_condition="failed") == [1]
assert values("vccl_lane_condition", end="sender", lane="1", vccl_lane_condition="failed") == [0]
assert values("vccl_lane_active", end="sender") == [0, 1]
gaps = [s for s in families["vccl_gap_seconds"].samples if s.labels["end"] == "receiver"]
assert [s.value for s in gaps if s.labels.get("le") in ("0.001", "0.002", "+Inf")] == [0, 1, 1], gaps
assert [s.value for s in gaps if s.name == "vccl_gap_seconds_sum"] == [0.001234567]

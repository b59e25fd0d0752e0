"""What a user does with compose.citus.yaml, step by step, and what has to be true after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.containers.scenes import PLACES, Scene

SALES = """
CREATE TABLE public.sales AS SELECT i AS id, i % 7 + sin(i) AS price,
    (ARRAY['north', 'south', 'west'])[1 + i % 3] AS shop, i % 7 > 3 AS sold FROM generate_series(1, 4000) i;
SELECT create_distributed_table('public.sales', 'id', shard_count => 8);
CREATE ROLE easeml_reads_postgres;
SELECT run_command_on_workers('GRANT easeml_rows TO easeml_reads_postgres'),
    run_command_on_workers('GRANT easeml_reads_postgres TO easeml_segment');
GRANT SELECT ON public.sales TO easeml_reads_postgres;
GRANT CREATE ON SCHEMA public TO easeml_service
"""
DATASET = """
SELECT easeml.create_dataset('sales', '{"w1": "public.sales"}', '{price,shop}', 'sold', n_partitions => 4)
"""
PREDICT = """
CALL easeml.predict_on_nodes('sales', '{"w1": "public.sales"}', 'public.sales_predicted', key => '{id}')
"""
PREDICTED = "SELECT sum(result::int) FROM run_command_on_workers('SELECT count(*) FROM public.sales_predicted')"
WORKERS = "SELECT string_agg(nodename, ' ' ORDER BY nodename) FROM pg_dist_node WHERE groupid > 0 AND isactive"
DRAWN = ("superuser", "service")
PASSWORDS = "SELECT count(*) FROM pg_dist_authinfo"


def citus_cluster(layers: Sequence[Path], folder: Path) -> None:
    """compose.citus.yaml: shards packed, trained and predicted on their workers, a worker killed, a second start."""
    scene = Scene("compose.citus.yaml", layers, folder)
    scene.machine.open()
    scene.step("control and a Citus cluster: up, until all are healthy", scene.machine.up)
    assert cluster(scene, WORKERS) == "w1 w2"
    assert cluster(scene, PASSWORDS) == "0"
    scene.step("a distributed table", lambda: cluster(scene, SALES))
    scene.step("easeml segment", lambda: scene.inside("control", "easeml", "segment").replace("\n", " | "))
    dataset = scene.psql(DATASET)
    scene.step("its shards packed on the workers", lambda: scene.psql(f"CALL easeml.wait_dataset({dataset}, 300)"))
    scene.psql("SELECT easeml.select_models('sales', '{mlp}', n_configs => 8, max_epochs => 8)")
    scene.step("until the first unit of a worker", lambda: scene.until(f"SELECT count(*) > 0 FROM ({PLACES}) p"))
    scene.step("w1 killed while it trains", lambda: scene.machine.kill("w1"))
    scene.step("w1 started again", lambda: scene.machine.start(scene.machine.project.services["w1"]).log.name)
    scene.step("until the run ends", lambda: scene.until("SELECT bool_and(status = 'finished') FROM easeml.run_status"))
    places = scene.psql(f"SELECT string_agg(segment_name || ' ' || n, ', ') FROM ({PLACES}) p")
    assert "w1" in places, places
    assert "w2" in places, places
    scene.step("units by segment", lambda: places)
    scene.step("predict_on_nodes", lambda: scene.psql(PREDICT))
    assert cluster(scene, PREDICTED) == "4000"
    told = scene.psql("SELECT count(*), max(validation_metric) FROM easeml.leaderboard")
    files = [(server, f"/var/lib/easeml/secrets/{name}") for server in ("control", "w1") for name in DRAWN]
    passwords = [scene.inside(server, "cat", path) for server, path in files]
    assert len(set(passwords)) == len(passwords)
    scene.step("stop", scene.close)
    told_in_logs = [path.name for path in folder.glob("*.log") for text in passwords if text in path.read_text("utf-8")]
    assert told_in_logs == [], told_in_logs
    scene.step("up again", scene.machine.up)
    assert scene.psql("SELECT count(*), max(validation_metric) FROM easeml.leaderboard") == told
    assert cluster(scene, WORKERS) == "w1 w2"
    assert cluster(scene, PREDICTED) == "4000"
    scene.step("stop", scene.close)


def cluster(scene: Scene, text: str) -> str:
    """Run SQL on the coordinator of the cluster, as its administrator does in its container."""
    return scene.inside("citus", "psql", "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", text, "easeml")

# gunicorn --config gunicorn.conf.py wsgi_app:app
import os
from typing import Any

bind = os.environ.get("BIND", "0.0.0.0:8000")
workers = int(os.environ.get("WORKERS", "2"))
preload_app = True
graceful_timeout = 20

# Each worker serves its own metrics on the first of these ports that is free. While workers are
# replaced, old and new workers run at the same time and need twice as many ports.
FIRST_PORT = int(os.environ.get("METRICS_PORT", "9101"))
METRICS_PORTS = range(FIRST_PORT, FIRST_PORT + 2 * workers)


def post_worker_init(worker: Any) -> None:
    from prometheus_client import start_http_server
    from wsgi_app import registry

    for port in METRICS_PORTS:
        try:
            start_http_server(port, registry=registry)
            return
        except OSError:
            continue
    worker.log.warning("no port of %s is free: this worker has no metrics", METRICS_PORTS)


def worker_exit(server: Any, worker: Any) -> None:
    # After SIGTERM and the last request: sends the views that are only in this process.
    from wsgi_app import views, votes

    views.close()
    votes.close()

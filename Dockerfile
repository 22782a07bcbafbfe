# hotcount and hotcount-load in an image, from the wheels in dist/ (`make wheel`), without a compiler:
#
#   make wheel && docker build -t hotcount . && docker run --rm hotcount hotcount --version
#   docker run --rm hotcount hotcount-load run -s memory --workload counters -d 1s
#
# The image was not built where this file was written: no registry of images is reached from there.
# scripts/wheel-check runs the steps in fresh roots of Debian 12 and 13.
FROM debian:12-slim
# hotcount loads libpq for postgresql:// and libmariadb for mariadb:// and mysql://. Its OpenSSL for
# rediss:// is the one that Python depends on.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libmariadb3 libpq5 python3-venv && rm -rf /var/lib/apt/lists/*
COPY dist/*.whl /tmp/wheels/
RUN python3 -m venv /opt/hotcount && /opt/hotcount/bin/pip install --no-cache-dir --no-index --find-links /tmp/wheels hotcount && rm -r /tmp/wheels
ENV PATH=/opt/hotcount/bin:$PATH
USER nobody
CMD ["hotcount", "--help"]

# Ingest: Spark with its Java, and the jars for S3 and for a catalog in PostgreSQL. Nothing is fetched at run time.
FROM python:3.11.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 THERMOCLINE_CACHE=/opt/thermocline/cache
WORKDIR /src
RUN python -m venv /opt/thermocline/venv
ENV PATH=/opt/thermocline/venv/bin:$PATH
COPY requirements/build.txt requirements/ingest.txt requirements/jdk.txt requirements/
RUN pip install --require-hashes -r requirements/build.txt \
    && pip install --require-hashes --no-build-isolation -r requirements/ingest.txt \
    && pip install --require-hashes -r requirements/jdk.txt
# `.dockerignore` lists what is of the product.
COPY . .
RUN pip install --no-deps --no-build-isolation .
# A jar counts as checked while its time is the one that was noted, and layers keep whole seconds: so it is noted twice.
RUN python -m thermocline.jvm spark s3 postgresql \
    && find /opt/thermocline/cache/jars -name '*.jar' -exec touch -d @0 {} + \
    && python -m thermocline.jvm spark s3 postgresql

FROM python:3.11.13-slim-bookworm
RUN useradd --uid 10001 --user-group --no-create-home thermocline \
    && install -d -o 10001 -g 10001 /var/lib/thermocline /var/lib/thermocline/tmp
COPY --from=build /opt/thermocline /opt/thermocline
COPY deploy/thermocline.toml /etc/thermocline/
ENV PATH=/opt/thermocline/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    TMPDIR=/var/lib/thermocline/tmp \
    THERMOCLINE_CACHE=/opt/thermocline/cache \
    THERMOCLINE_CONFIG=/etc/thermocline/thermocline.toml
WORKDIR /var/lib/thermocline
USER 10001:10001
ENTRYPOINT ["thermocline"]
CMD ["ingest", "run", "--metrics-port", "9100"]

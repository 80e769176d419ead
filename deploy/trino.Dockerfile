# Trino with the catalogs, rights and limits that `views config` writes from the configuration in deploy/.
FROM python:3.11.13-slim-bookworm AS configuration
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/build.txt requirements/serving.txt requirements/
RUN pip install --require-hashes -r requirements/build.txt \
    && pip install --require-hashes --no-build-isolation -r requirements/serving.txt
# `.dockerignore` lists what is of the product.
COPY . .
RUN pip install --no-deps --no-build-isolation .
# What they stand for is not written: Trino reads variables of its own.
RUN STORE_ACCESS_KEY=- STORE_SECRET_KEY=- thermocline --config deploy/thermocline.toml views config /trino

FROM trinodb/trino:476
COPY --from=configuration --chown=1000:1000 /trino /etc/trino
USER 1000:1000

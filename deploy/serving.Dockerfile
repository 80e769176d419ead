# Serving: tailer and API. No Java.
FROM python:3.11.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/thermocline/venv
ENV PATH=/opt/thermocline/venv/bin:$PATH
COPY requirements/build.txt requirements/serving.txt requirements/
RUN pip install --require-hashes -r requirements/build.txt \
    && pip install --require-hashes --no-build-isolation -r requirements/serving.txt
# `.dockerignore` lists what is of the product.
COPY . .
RUN pip install --no-deps --no-build-isolation .

FROM python:3.11.13-slim-bookworm
RUN useradd --uid 10001 --user-group --no-create-home thermocline \
    && install -d -o 10001 -g 10001 /var/lib/thermocline /var/lib/thermocline/tmp /var/lib/access
COPY --from=build /opt/thermocline /opt/thermocline
COPY deploy/thermocline.toml /etc/thermocline/
ENV PATH=/opt/thermocline/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    TMPDIR=/var/lib/thermocline/tmp \
    THERMOCLINE_CONFIG=/etc/thermocline/thermocline.toml
WORKDIR /var/lib/thermocline
USER 10001:10001
ENTRYPOINT ["thermocline"]
CMD ["serve"]

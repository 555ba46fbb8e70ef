# What Tollgate needs at run time, and nothing that builds. The default target edits pictures too, `ffmpeg` also films; `gateway` has no packages of engines.
# A name means another image after each of its updates; a release names one by its digest (docs/releases.md).
ARG NODE=node:26-slim

FROM ${NODE} AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY image/prune.mjs ./image/
RUN npm ci --omit=dev --ignore-scripts --workspaces=false && node image/prune.mjs node_modules

FROM ${NODE} AS engines
WORKDIR /app
COPY package.json package-lock.json ./
COPY engines ./engines
COPY image/prune.mjs ./image/
RUN npm ci --omit=dev --ignore-scripts && node engines/image/prune.mjs && node image/prune.mjs node_modules

# The page of the dashboard, built, and the bills of materials. Their tools stay in this stage.
FROM ${NODE} AS page
WORKDIR /app
COPY package.json package-lock.json ./
COPY runtime ./runtime
COPY engines ./engines
RUN npm ci --ignore-scripts
COPY plugins/dashboard ./plugins/dashboard
COPY tsconfig.json ./
RUN node plugins/dashboard/build.mjs
COPY image/sbom.ts ./image/
COPY --from=dependencies /app/node_modules ./gateway/node_modules
COPY --from=dependencies /app/node_modules ./all/node_modules
COPY --from=engines /app/node_modules ./all/node_modules
RUN node image/sbom.ts gateway && node image/sbom.ts all

FROM scratch AS program
WORKDIR /app
COPY package.json LICENSE ./
COPY bin ./bin
COPY src ./src
COPY engines ./engines
COPY plugins ./plugins
COPY --from=page /app/plugins/dashboard/dist ./plugins/dashboard/dist
COPY crds ./crds
COPY plans ./plans

# What changes least comes first, so that an upgrade pulls the program alone.
FROM ${NODE} AS runtime
ENV NODE_ENV=production HOST=0.0.0.0 OPS_HOST=0.0.0.0 DATA_DIR=/data
WORKDIR /app
RUN install --directory --mode=700 --owner=1000 --group=1000 /data
EXPOSE 8080 9090
ENTRYPOINT ["node", "bin/tollgate.mjs"]

# A container's file system is read-only: without this code, each start would compile the program and strip its types.
FROM runtime AS compiled
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=program /app ./
COPY image/compile.ts ./image/
RUN node image/compile.ts

FROM runtime AS gateway
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=program /app ./
COPY --from=compiled /app/compiled ./compiled
COPY --from=page /app/gateway/sbom.cdx.json /app/gateway/LICENSES.txt ./
# A number, so that Kubernetes can see that it is not root.
USER 1000:1000

FROM runtime AS base
COPY --from=engines /app/node_modules ./node_modules
COPY --from=program /app ./
COPY --from=compiled /app/compiled ./compiled
COPY --from=page /app/all/sbom.cdx.json /app/all/LICENSES.txt ./
USER 1000:1000

FROM base AS ffmpeg
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
USER 1000:1000

# The default target.
FROM base

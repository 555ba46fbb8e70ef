# What Tollgate needs at run time, and nothing that builds. The default target edits pictures too, `ffmpeg` also films; `gateway` has no packages of engines.
FROM node:26-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --workspaces=false

FROM node:26-slim AS engines
WORKDIR /app
COPY package.json package-lock.json ./
COPY engines ./engines
RUN npm ci --omit=dev --ignore-scripts --workspace=engines/image && node engines/image/prune.mjs

# The page of the dashboard, built, and the bills of materials. Their tools stay in this stage.
FROM node:26-slim AS page
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

FROM node:26-slim AS program
ENV NODE_ENV=production HOST=0.0.0.0 OPS_HOST=0.0.0.0 DATA_DIR=/data
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json LICENSE ./
COPY bin ./bin
COPY src ./src
COPY engines ./engines
COPY plugins ./plugins
COPY --from=page /app/plugins/dashboard/dist ./plugins/dashboard/dist
COPY crds ./crds
COPY plans ./plans

# A container's file system is read-only: without this code, each start would compile the program and strip its types.
FROM program AS compiled
COPY image/compile.ts ./image/
RUN node image/compile.ts

FROM program AS gateway
COPY --from=compiled /app/compiled ./compiled
COPY --from=page /app/gateway/sbom.cdx.json /app/gateway/LICENSES.txt ./
RUN install --directory --mode=700 --owner=1000 --group=1000 /data
# A number, so that Kubernetes can see that it is not root.
USER 1000:1000
EXPOSE 8080 9090
ENTRYPOINT ["node", "bin/tollgate.mjs"]

FROM gateway AS base
COPY --from=engines /app/node_modules ./node_modules
COPY --from=page /app/all/sbom.cdx.json /app/all/LICENSES.txt ./

FROM base AS ffmpeg
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
USER 1000:1000

# The default target.
FROM base

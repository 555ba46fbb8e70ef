# What Tollgate needs at run time, and nothing that builds. The target `ffmpeg` also has what `trim` and `merge` of the local engine need.
FROM node:26-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts

# The page of the dashboard, built, and the bill of materials. Their tools stay in this stage.
FROM node:26-slim AS page
WORKDIR /app
COPY package.json package-lock.json ./
COPY runtime ./runtime
RUN npm ci --ignore-scripts
COPY plugins/dashboard ./plugins/dashboard
COPY tsconfig.json ./
RUN node plugins/dashboard/build.mjs
COPY image/sbom.ts ./image/
RUN node image/sbom.ts .

FROM node:26-slim AS program
ENV NODE_ENV=production HOST=0.0.0.0 OPS_HOST=0.0.0.0 DATA_DIR=/data
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json LICENSE ./
COPY bin ./bin
COPY src ./src
COPY plugins ./plugins
COPY --from=page /app/plugins/dashboard/dist ./plugins/dashboard/dist
COPY --from=page /app/sbom.cdx.json /app/LICENSES.txt ./
COPY crds ./crds
COPY plans ./plans

# A container's file system is read-only: without this code, each start would compile the program and strip its types.
FROM program AS compiled
COPY image/compile.ts ./image/
RUN node image/compile.ts

FROM program AS base
COPY --from=compiled /app/compiled ./compiled
RUN install --directory --mode=700 --owner=1000 --group=1000 /data
# A number, so that Kubernetes can see that it is not root.
USER 1000:1000
EXPOSE 8080 9090
ENTRYPOINT ["node", "bin/tollgate.mjs"]

FROM base AS ffmpeg
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
USER 1000:1000

# The default target.
FROM base

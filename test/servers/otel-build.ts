/** The OpenTelemetry Collector as an entry of the cache. Its project publishes no program in the Go module proxy, only the parts of one: `otel-collector.go` puts them together. */
import { copyFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { go, lacksGo } from './go.ts'

const VERSION = '0.150.0'
const MODULES = ['exporter/otlphttpexporter', 'otelcol', 'receiver/otlpreceiver']

export const OTEL_COLLECTOR: Entry = {
  name: 'otel-collector',
  version: VERSION,
  program: 'collector',
  lacks: lacksGo,
  async install(folder) {
    const requires = MODULES.map((module) => `require go.opentelemetry.io/collector/${module} v${VERSION}\n`)
    await writeFile(join(folder, 'go.mod'), `module tollgate.invalid/collector\n\ngo 1.25\n\n${requires.join('')}`)
    await copyFile(join(import.meta.dirname, 'otel-collector.go'), join(folder, 'main.go'))
    // Completes go.mod and go.sum by what is built. `go mod tidy` would download what only tests of these modules import.
    await go(['build', '-mod=mod', '-trimpath', '-ldflags=-s -w', '-o', 'collector', '.'], folder)
    for (const file of ['go.mod', 'go.sum', 'main.go']) await rm(join(folder, file))
  },
}

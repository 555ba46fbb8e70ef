/** Starts the OpenTelemetry Collector. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { OTEL_COLLECTOR } from './otel-build.ts'
import { accepts, freePort, start } from './process.ts'
import { serve, type Server } from './server.ts'
import { own } from './shared.ts'

/** A private collector, which receives OTLP at `url` and sends it on to `target`; null, with the test skipped, when it is not installed. */
export function ownCollector(t: Test, target: string): Promise<(Server & { url: string }) | null> {
  return own(t, [OTEL_COLLECTOR.name], async () => {
    const port = await freePort()
    const config = {
      receivers: { otlp: { protocols: { http: { endpoint: `127.0.0.1:${port}` } } } },
      exporters: { otlp_http: { endpoint: target, compression: 'none' } },
      service: { telemetry: { metrics: { level: 'none' } }, pipelines: { traces: { receivers: ['otlp'], exporters: ['otlp_http'] } } },
    }
    const server = await serve(
      (folder) => writeFile(join(folder, 'config.json'), JSON.stringify(config)),
      async (folder, running) => void running.push(await start({ argv: [installed(OTEL_COLLECTOR.name), '--config', join(folder, 'config.json')], ready: () => accepts(port) })),
    )
    return { ...server, url: `http://127.0.0.1:${port}` }
  })
}

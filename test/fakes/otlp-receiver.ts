/** An OTLP receiver over HTTP on port 0, which decodes what it gets. */
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { eventually } from '../flows/eventually.ts'
import { decodeTraces, type ExportedSpan } from './otlp-protobuf.ts'

export type OtlpReceiver = {
  url: string
  /** Settings of a program that sends its traces here soon. */
  env: Record<string, string>
  spans: ExportedSpan[]
  /** Number of requests. */
  count(): number
  /** All bytes so far, as latin1. */
  text(): string
  /** Resolves with the first span of that name. */
  span(name: string, accept?: (span: ExportedSpan) => boolean): Promise<ExportedSpan>
}

/** `answer` replaces the answer of a receiver in order. */
export async function openOtlpReceiver(t: Test, answer?: RequestListener): Promise<OtlpReceiver> {
  const spans: ExportedSpan[] = []
  let text = ''
  let count = 0
  const server = createServer(async (request, response) => {
    count++
    if (answer) return answer(request, response)
    const body = Buffer.concat(await request.toArray())
    text += body.toString('latin1')
    if (request.url !== '/v1/traces' || request.headers['content-type'] !== 'application/x-protobuf') return void response.writeHead(415).end()
    spans.push(...decodeTraces(body))
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_SCHEDULE_DELAY: '50' },
    spans,
    count: () => count,
    text: () => text,
    span: (name, accept = () => true) => eventually(`the span ${name}`, async () => spans.find((span) => span.name === name && accept(span)) ?? null),
  }
}

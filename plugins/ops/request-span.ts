/** The server span of a request, by the semantic conventions for HTTP. */
import { BlockList, isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import type { Config } from '../../src/config/config.ts'
import { isTracing, startSpan, type Span } from '../../src/telemetry/tracing.ts'

/**
 * Returns the function that starts the span of a request. A client's own trace is continued only where its connection comes from a proxy of
 * TRUST_PROXY; any other is linked to, because its sampling and its ids are a stranger's.
 */
export function requestSpans(config: Config): (request: FastifyRequest) => Span {
  if (!isTracing()) return () => startSpan('')
  const trusted = networks(config.TRUST_PROXY)
  return (request) => {
    const { method, routeOptions, headers, raw } = request
    const {
      url: route,
      config: { api },
    } = routeOptions
    const own = typeof headers['traceparent'] === 'string' ? headers['traceparent'] : undefined
    const isTrusted = own !== undefined && trusted(raw.socket?.remoteAddress ?? '')
    return startSpan(route === undefined ? method : `${method} ${route}`, {
      kind: 'server',
      ...(isTrusted ? { parent: own, state: stateOf(headers['tracestate']) } : { parent: null, link: own }),
      attributes: {
        'http.request.method': method,
        'http.route': route,
        'url.scheme': request.protocol,
        'network.protocol.version': raw.httpVersion,
        'tollgate.product': api,
        'tollgate.request_id': request.id,
      },
    })
  }
}

/** Ends the span at `endedAtMs` with the answer, and the settled tokens of a completion. */
export function endRequestSpan(
  span: Span,
  { caller, failed }: FastifyRequest,
  status: number,
  logged: Record<string, unknown>,
  endedAtMs: number,
): void {
  const { tokens } = logged as { tokens?: { input: number; output: number } }
  span.set({
    'http.response.status_code': status,
    'tollgate.tenant': caller?.key.tenant,
    'gen_ai.usage.input_tokens': tokens?.input,
    'gen_ai.usage.output_tokens': tokens?.output,
  })
  if (status >= 500) span.fail(failed ?? String(status))
  span.end(endedAtMs)
}

function stateOf(header: string | string[] | undefined): string | undefined {
  return header === undefined ? undefined : [header].flat().join(',')
}

function networks(list: readonly string[]): (address: string) => boolean {
  const known = new BlockList()
  for (const entry of list) {
    const [address = '', bits] = entry.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    if (bits === undefined) known.addAddress(address, family)
    else known.addSubnet(address, Number(bits), family)
  }
  return (address) => {
    const plain = address.replace(/^::ffff:(?=\d+\.)/, '')
    return isIP(plain) > 0 && known.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4')
  }
}

/**
 * Calls of the tools that read and answer at once, without the server and the web `Request` that the SDK makes for each message, which take most of the time of such a
 * call. One is direct only where the SDK's classification and types find nothing special about it. All others, and whatever is to be refused, are the SDK's.
 */
import {
  classifyInboundRequest,
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  isJsonContentType,
  isSpecType,
  PROTOCOL_VERSION_META_KEY,
  SUPPORTED_PROTOCOL_VERSIONS,
} from '@modelcontextprotocol/server'
import type { FastifyRequest } from 'fastify'
import { isMembers, type Members } from '../../src/upstream/wires/allowlist.ts'

const TOOLS: readonly string[] = ['get_task', 'list_tasks', 'get_usage']
const REVISION = '2026-07-28'
const ENVELOPE = [PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY]

export type DirectCall = { id: string | number; name: string; args: Record<string, unknown>; era: 'modern' | 'legacy' }

const hasOnly = (value: Members, names: readonly string[]): boolean => Object.keys(value).every((name) => names.includes(name))

/** The call of a request, or null where the SDK is to answer it. */
export function directCallOf({ headers, body }: Pick<FastifyRequest, 'headers' | 'body'>): DirectCall | null {
  if (!isMembers(body) || body['method'] !== 'tools/call' || !hasOnly(body, ['jsonrpc', 'id', 'method', 'params'])) return null
  const { id, params } = body
  if ((typeof id !== 'string' && typeof id !== 'number') || !isMembers(params) || !hasOnly(params, ['name', 'arguments', '_meta']))
    return null
  const { name, arguments: args = {}, _meta: meta } = params
  if (typeof name !== 'string' || !TOOLS.includes(name) || !isMembers(args) || (args['wait_seconds'] ?? 0) !== 0) return null
  const accepted = headers.accept ?? ''
  if (!accepted.includes('application/json') || !accepted.includes('text/event-stream')) return null
  if (!isJsonContentType(headers['content-type'] ?? '')) return null
  const era = eraOf(headers, body, name, meta)
  return era && { id, name, args, era }
}

function eraOf(headers: FastifyRequest['headers'], body: Members, name: string, meta: unknown): DirectCall['era'] | null {
  const revision = headers['mcp-protocol-version']
  if (typeof revision !== 'string') return null
  const [method, named] = [headers['mcp-method'], headers['mcp-name']]
  const route = classifyInboundRequest({
    httpMethod: 'POST',
    protocolVersionHeader: revision,
    ...(typeof method === 'string' && { mcpMethodHeader: method }),
    ...(typeof named === 'string' && { mcpNameHeader: named }),
    body,
  })
  if (meta === undefined) return route.kind === 'legacy' && SUPPORTED_PROTOCOL_VERSIONS.includes(revision) ? 'legacy' : null
  const isUsual =
    isMembers(meta) &&
    hasOnly(meta, ENVELOPE) &&
    isSpecType.Implementation(meta[CLIENT_INFO_META_KEY]) &&
    isSpecType.ClientCapabilities(meta[CLIENT_CAPABILITIES_META_KEY])
  const isNamed = revision === REVISION && method === 'tools/call' && named === name
  return isUsual && isNamed && route.kind === 'modern' && route.classification.revision === REVISION ? 'modern' : null
}

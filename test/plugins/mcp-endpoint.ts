/** Test fixture: the MCP endpoint beside the Media API, its official client, and raw messages. */
import { Client, StreamableHTTPClientTransport, type CallToolResult } from '@modelcontextprotocol/client'
import type { Test } from 'tap'
import mcp from '../../plugins/mcp/mcp.ts'
import { bearer } from './gateway.ts'
import { openStudio, type Studio, type StudioOptions } from './studio.ts'

export type Endpoint = Studio & {
  url: string
  connect(mode?: 'legacy' | 'auto', raw?: string): Promise<Client>
  /** Sends a message as it is. */
  rpc(message: unknown, headers?: Record<string, string>, signal?: AbortSignal): Promise<Response>
}

export async function openEndpoint(t: Test, options: StudioOptions = {}): Promise<Endpoint> {
  const studio = await openStudio(t, { ...options, also: (app) => app.register(mcp) })
  const url = `${await studio.app.listen({ port: 0, host: '127.0.0.1' })}/mcp`
  return {
    ...studio,
    url,
    async connect(mode = 'auto', raw = studio.raw) {
      const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } })
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: bearer(raw) } }))
      t.teardown(() => client.close())
      return client
    },
    rpc: (message, headers = {}, signal) =>
      fetch(url, {
        method: 'POST',
        headers: { ...bearer(studio.raw), 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
        body: typeof message === 'string' ? message : JSON.stringify(message),
        ...(signal ? { signal } : {}),
      }),
  }
}

export type Message = { id?: number; result?: CallToolResult & Record<string, unknown>; error?: { code: number; message: string; data?: unknown } }

/** The last message of an answer that came as JSON, or as a stream. */
export async function messageOf(response: Response): Promise<Message> {
  const text = await response.text()
  return JSON.parse([...text.matchAll(/^data: (.*)$/gm)].at(-1)?.[1] ?? text)
}

/** A request of revision 2026-07-28 with its headers. */
export function modern(method: string, params: Record<string, unknown> = {}, capabilities: object = {}, id = 1): [message: object, headers: Record<string, string>] {
  const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'raw', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': capabilities }
  const name = params['name'] ?? params['uri'] ?? params['taskId']
  return [
    { jsonrpc: '2.0', id, method, params: { ...params, _meta } },
    { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method, ...(typeof name === 'string' ? { 'mcp-name': name } : {}) },
  ]
}

/** The JSON of a result's text. */
export const textOf = ({ content }: CallToolResult): unknown => (content[0]?.type === 'text' ? JSON.parse(content[0].text) : null)

/** The error body of a tool error; null when the call succeeded. */
export async function errorOf(client: Client, name: string, args: Record<string, unknown>): Promise<unknown> {
  const result = await client.callTool({ name, arguments: args })
  return result.isError ? textOf(result) : null
}

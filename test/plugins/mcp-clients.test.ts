/** The official clients of MCP: both generations of the SDK, and the Inspector's CLI, which `npm run servers mcp-inspector` installs. */
import { dirname, join } from 'node:path'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import t, { type Test } from 'tap'
import { run } from '../flows/run.ts'
import { need } from '../servers/client.ts'
import { openSources } from '../contracts/operations/sources.ts'
import type { Urls } from '../contracts/operations/bodies.ts'
import { folderFor } from '../temporary-folder.ts'
import { bearer } from './gateway.ts'
import { openEndpoint, type Endpoint } from './mcp-endpoint.ts'

type Result = { content?: unknown; structuredContent?: unknown; isError?: boolean | undefined }
/** A connected client. */
type Caller = { tools(): Promise<string[]>; call(name: string, args: Record<string, unknown>): Promise<Result>; read(uri: string): Promise<string> }

const text = ({ contents }: { contents: unknown[] }): string => (contents[0] as { text: string }).text

async function sdk2(t: Test, { url, raw }: Endpoint, mode: 'auto' | 'legacy'): Promise<Caller> {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } })
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: bearer(raw) } }))
  t.teardown(() => client.close())
  return {
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: (name, args) => client.callTool({ name, arguments: args }),
    read: async (uri) => text(await client.readResource({ uri })),
  }
}

async function sdk1(t: Test, { url, raw }: Endpoint): Promise<Caller> {
  const client = new OldClient({ name: 'test', version: '1' })
  // Its types disagree with exactOptionalPropertyTypes.
  await client.connect(new OldTransport(new URL(url), { requestInit: { headers: bearer(raw) } }) as unknown as Parameters<OldClient['connect']>[0])
  t.teardown(() => client.close())
  return {
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: (name, args) => client.callTool({ name, arguments: args }) as Promise<Result>,
    read: async (uri) => text(await client.readResource({ uri })),
  }
}

/** Runs the CLI for each request, as a shell would. */
async function inspector(t: Test, { url, raw }: Endpoint, installed: string): Promise<Caller> {
  const home = await folderFor(t)
  const program = join(dirname(installed), 'clients/launcher/build/index.js')
  const request = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(process.execPath, [program, '--cli', url, '--transport', 'http', '--header', `Authorization: Bearer ${raw}`, ...args], { cwd: home, env: { HOME: home } })
    if (args.includes('--strict')) t.equal(stderr.trim(), '', 'no warnings')
    if (code !== 0 && !stdout.includes('"isError"')) throw new Error(`inspector ended with ${code}: ${stderr}`)
    return JSON.parse(stdout)
  }
  return {
    tools: async () => (await request('--method', 'tools/list', '--strict')).tools.map(({ name }: { name: string }) => name),
    async call(name, args) {
      const pairs = Object.entries(args).flatMap(([argument, value]) => ['--tool-arg', `${argument}=${typeof value === 'string' ? value : JSON.stringify(value)}`])
      return request('--method', 'tools/call', '--tool-name', name, ...pairs)
    },
    read: async (uri) => text(await request('--method', 'resources/read', '--uri', uri)),
  }
}

const CLIENTS: [name: string, open: (t: Test, endpoint: Endpoint) => Promise<Caller | null>][] = [
  ['SDK 2.x, revision 2026-07-28', (t, endpoint) => sdk2(t, endpoint, 'auto')],
  ['SDK 2.x, the earlier handshake', (t, endpoint) => sdk2(t, endpoint, 'legacy')],
  ['SDK 1.x', sdk1],
  [
    "the Inspector's CLI",
    async (t, endpoint) => {
      const installed = need(t, 'mcp-inspector')
      return installed === null ? null : inspector(t, endpoint, installed)
    },
  ],
]

const CREATIONS: [tool: string, args: (urls: Urls) => Record<string, unknown>][] = [
  ['generate_image', () => ({ prompt: 'a lighthouse', size: '64x64', metadata: { order: '1' } })],
  ['generate_video', () => ({ prompt: 'waves', duration_seconds: 1 })],
  ['generate_music', () => ({ prompt: 'rain', duration_seconds: 1 })],
  ['background_remove', ({ image }) => ({ media_url: image, background: '#ffffff', crop: true })],
  ['upscale', ({ image }) => ({ media_url: image, scale: 2 })],
  ['ai_edit', ({ image }) => ({ media_url: image, prompt: 'add a hat', strength: 0.5 })],
  ['inpaint', ({ image, mask }) => ({ media_url: image, mask_url: mask, prompt: 'a lawn' })],
  ['trim', ({ film }) => ({ media_url: film, start_time: 0.1, duration: 1 })],
  ['merge', ({ film, song }) => ({ media_urls: [film, song] })],
]

for (const [name, open] of CLIENTS) {
  t.test(`${name}: every tool, with content and structured content, a resource, and an error`, { timeout: 300_000 }, async (t) => {
    const endpoint = await openEndpoint(t)
    const { urls } = await openSources(t)
    const client = await open(t, endpoint)
    if (!client) return
    t.same(await client.tools(), [...CREATIONS.map(([tool]) => tool), 'get_task', 'list_tasks', 'cancel_task', 'get_usage', 'create_upload'])
    const creations = CREATIONS.map(async ([tool, args]) => {
      const made = await client.call(tool, { ...args(urls), wait_seconds: 45 })
      t.match(made, { structuredContent: { id: String, status: 'completed' }, content: [{ type: 'text' }, { type: 'image', mimeType: 'image/png' }, { type: 'resource_link', uri: /^http/ }] }, tool)
    })
    await Promise.all(creations)
    endpoint.engine.next('hang')
    const { id } = (await client.call('generate_image', { prompt: 'another' })).structuredContent as { id: string }
    t.match(await client.call('get_task', { task_id: id, wait_seconds: 0 }), { structuredContent: { id, status: /queued|processing/ } })
    t.match(await client.call('cancel_task', { task_id: id }), { structuredContent: { id, status: 'canceled' } })
    t.match(await client.call('cancel_task', { task_id: id }), { isError: true, content: [{ text: /already_final/ }] })
    t.match(await client.call('list_tasks', { kind: 'image', limit: 1 }), { structuredContent: { data: [{ id }], has_more: true } })
    t.match(await client.call('get_usage', {}), { structuredContent: (await endpoint.get('/api/v1/usage')).json() })
    t.match(await client.call('create_upload', {}), { structuredContent: { upload_url: /^http/ } })
    t.match(JSON.parse(await client.read(`task://${id}`)), { id, status: 'canceled' })
  })
}

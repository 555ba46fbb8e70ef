/** The Media API over MCP: the contract of operations, and every answer compared with that of REST, member by member. */
import { deepEqual } from 'node:assert/strict'
import { Client, StreamableHTTPClientTransport, type CallToolResult } from '@modelcontextprotocol/client'
import t from 'tap'
import mcp from '../../plugins/mcp/mcp.ts'
import { operationPromises, type Answer, type Surface } from '../contracts/operations.ts'
import { runContract } from '../contracts/run-contract.ts'
import { bearer } from './gateway.ts'
import { errorOf, openEndpoint, textOf } from './mcp-endpoint.ts'
import { isFinal, type Studio } from './studio.ts'

const clients = new WeakMap<Studio['app'], Promise<Client>>()

/** The client of a studio, connected at its first call. */
function clientOf({ app, raw }: Studio): Promise<Client> {
  const known = clients.get(app) ?? connect()
  clients.set(app, known)
  return known

  async function connect(): Promise<Client> {
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: 'auto' } })
    await client.connect(new StreamableHTTPClientTransport(new URL(`${await app.listen({ port: 0, host: '127.0.0.1' })}/mcp`), { requestInit: { headers: bearer(raw) } }))
    // With the list of tools, the client checks structured content against their output schemas.
    await client.listTools()
    return client
  }
}

/** The record or the error body of a call, which its text repeats. */
async function callOf(client: Client, name: string, args: Record<string, unknown>): Promise<Answer> {
  const result: CallToolResult = await client.callTool({ name, arguments: args })
  if (!result.isError) deepEqual(textOf(result), result.structuredContent)
  return textOf(result) as Answer
}

/** What of an error body is the same in both: REST adds the members of RFC 9457, MCP the seconds of Retry-After. */
const faultOf = ({ error, errors, required, available }: Answer) => ({ error, errors, required, available })

const overMcp: Surface = {
  also: (app) => app.register(mcp),
  async create(studio, { operation, ...body }, key) {
    const answer = await callOf(await clientOf(studio), operation, { ...body, ...(key === undefined ? {} : { idempotency_key: key }) })
    // A refused request leaves nothing behind: the same body gets the same refusal from REST.
    if (answer.error) deepEqual(faultOf(answer), faultOf((await studio.operate({ operation, ...body }, key === undefined ? {} : { 'idempotency-key': key })).json()))
    return answer
  },
  async get(studio, id) {
    const answer = await callOf(await clientOf(studio), 'get_task', { task_id: id })
    const rest = (await studio.get(`/api/v1/operations/${id}`)).json()
    // A task that has not ended may move between the two reads.
    if (isFinal(answer)) deepEqual(answer, rest)
    else deepEqual(Object.keys(answer), Object.keys(rest))
    return answer
  },
  async cancel(studio, id) {
    const answer = await callOf(await clientOf(studio), 'cancel_task', { task_id: id })
    const rest = (await studio.post(`/api/v1/operations/${id}/cancel`)).json()
    if (answer.error) deepEqual(faultOf(answer), faultOf(rest))
    else deepEqual(answer, (await studio.get(`/api/v1/operations/${id}`)).json())
    return answer
  },
}

t.test('the operations of the contract over MCP, each answer equal to that of REST', (t) => runContract(t, operationPromises(overMcp), () => null))

const GENERATIONS: [tool: string, kind: string, bodies: object[]][] = [
  ['generate_image', 'image', [{ prompt: 'a lighthouse' }, { prompt: 'x', size: '64x32', seed: 7, output_format: 'png', metadata: { order: '1' }, max_cost: '1', webhook_url: 'http://127.0.0.1:9/hook' }, { prompt: 'x', aspect_ratio: '16:9' }]],
  ['generate_video', 'video', [{ prompt: 'waves' }, { prompt: 'waves', size: '64x64', duration_seconds: 2.5, seed: 1 }]],
  ['generate_music', 'music', [{ prompt: 'rain' }, { prompt: 'rain', duration_seconds: 1, seed: 0 }]],
]

/** Faults that every kind has, and those of some. */
const FAULTS: [tool: string, kind: string, bodies: object[]][] = [
  ...GENERATIONS.map(([tool, kind]): [string, string, object[]] => [
    tool,
    kind,
    [{}, { prompt: '' }, { prompt: 7 }, { prompt: 'x'.repeat(8001) }, { prompt: 'x', colour: 'red' }, { prompt: 'x', seed: -1 }, { prompt: 'x', seed: 1.5 }, { prompt: 'x', output_format: 'exe' }, { prompt: 'x', metadata: { a: 1 } },
      { prompt: 'x', max_cost: '-1' }, { prompt: 'x', max_cost: '0.000001' }, { prompt: 'x', webhook_url: 'http://169.254.169.254/' }, { prompt: 'x', webhook_url: 'ftp://example.com/' }, { prompt: '', seed: 'x', output_format: 7 }],
  ]),
  ['generate_image', 'image', [{ prompt: 'x', size: 'large' }, { prompt: 'x', size: '8x8' }, { prompt: 'x', size: '99999x99999' }, { prompt: 'x', size: '64x64', aspect_ratio: '1:1' }]],
  ['generate_video', 'video', [{ prompt: 'x', size: '63x64' }, { prompt: 'x', duration_seconds: 0 }, { prompt: 'x', duration_seconds: 3600 }]],
  ['generate_music', 'music', [{ prompt: 'x', duration_seconds: '1' }, { prompt: 'x', duration_seconds: 3601 }]],
]

t.test('every generation over MCP has the record of REST, and every refusal its error', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  await client.listTools()
  for (const [tool, kind, bodies] of GENERATIONS) {
    for (const body of bodies) {
      const record = await callOf(client, tool, { ...body })
      t.same(record, (await endpoint.get(`/api/v1/generations/${record.id}`)).json(), `${tool} ${JSON.stringify(body)}`)
      const rest = (await endpoint.create({ prompt: undefined, kind, ...body })).json()
      const same = ({ id: _id, created_at: _at, queue_position: _position, ...members }: Record<string, unknown>) => members
      t.same(same(record), same(rest), 'the same body makes the same task')
    }
  }
  for (const [tool, kind, bodies] of FAULTS) {
    for (const body of bodies) {
      const answer = await callOf(client, tool, { ...body })
      t.ok(answer.error, JSON.stringify(body).slice(0, 80))
      t.same(faultOf(answer), faultOf((await endpoint.create({ prompt: undefined, kind, ...body })).json()), `${tool} ${JSON.stringify(body).slice(0, 80)}`)
    }
  }
  t.equal((await endpoint.get('/api/v1/usage')).json().held, (await callOf(client, 'get_usage', {}))['held'], 'the usage is the same')
})

t.test('a list over MCP is the list of REST: of one kind, of one operation, by status and time, page by page; without either it has both', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  await client.listTools()
  const made: string[] = []
  for (let i = 0; i < 3; i++) {
    made.push((await endpoint.create()).json().id)
    made.push((await endpoint.operate({ operation: 'upscale', media_url: 'https://example.com/a.png' })).json().id)
    endpoint.time.now += 1_000
  }
  await endpoint.post(`/api/v1/generations/${made[0]}/cancel`)
  const at = new Date(endpoint.time.now - 2_500).toISOString()
  for (const [args, path] of [
    [{ kind: 'image' }, 'generations?kind=image'],
    [{ operation: 'upscale', limit: 2 }, 'operations?operation=upscale&limit=2'],
    [{ kind: 'image', status: 'canceled' }, 'generations?kind=image&status=canceled'],
    [{ kind: 'image', created_after: at }, `generations?kind=image&created_after=${at}`],
    [{ operation: 'upscale', created_before: at }, `operations?operation=upscale&created_before=${at}`],
    [{ kind: 'video' }, 'generations?kind=video'],
  ] as const) {
    t.same(await callOf(client, 'list_tasks', { ...args }), (await endpoint.get(`/api/v1/${path}`)).json(), path)
  }
  const seen: unknown[] = []
  let cursor: string | null = null
  do {
    const page: Answer = await callOf(client, 'list_tasks', { limit: 4, ...(cursor === null ? {} : { cursor }) })
    seen.push(...(page['data'] as { id: string }[]).map(({ id }) => id))
    cursor = page['next_cursor'] as string | null
  } while (cursor !== null)
  t.same(seen, made.toReversed(), 'newest first, none twice, none left out')
  for (const [args, path] of [[{ kind: 'image', operation: 'upscale' }, '/operation'], [{ cursor: 'x' }, '/cursor'], [{ limit: 101 }, '/limit'], [{ limit: '2' }, '/limit'], [{ created_after: 'yesterday' }, '/created_after'], [{ kind: 'song' }, '/kind'], [{ object: 'x' }, '/object']] as const) {
    t.match(await errorOf(client, 'list_tasks', { ...args }), { error: { code: 'invalid_request' }, errors: [{ path }] }, JSON.stringify(args))
  }
})

/** The routes of /v1 over given upstreams, with stand-ins for auth and metering that record admissions, extensions and settlements. */
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fastify, { type FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Registry } from 'prom-client'
import type { Test } from 'tap'
import errors from '../../plugins/errors/errors.ts'
import { openGrowth } from '../../plugins/metering/reservation-growth.ts'
import requestBody from '../../plugins/request-body/request-body.ts'
import cors from '../../plugins/cors/cors.ts'
import openai, { type OpenaiOptions } from '../../plugins/openai/openai.ts'
import { openEgress } from '../../src/egress/egress.ts'
import type { Lookup } from '../../src/egress/dns-lookup.ts'
import type { Caller } from '../../plugins/auth/auth.ts'
import type { Admission, Admitted, OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { openUpstreams, type Upstreams, type UpstreamsOptions } from '../../src/upstream/upstreams.ts'
import { folderFor } from '../temporary-folder.ts'
import { checkMessagesJson, checkMessagesStream } from './messages-schemas.ts'
import { deriveKeys } from '../../src/domain/derived-keys.ts'

export const SILENT = { info() {}, warn() {}, error() {} }

export type Gateway = {
  app: FastifyInstance
  url: string
  upstreams: Upstreams
  /** The sizes of the admitted requests, in order. */
  admissions: Admission[]
  /** The sizes to which the reservation was extended, in order. */
  ensured: number[]
  /** The next settlement, after its response has closed. */
  settled(): Promise<Omit<Settlement, 'seen'> | null>
  /** The output tokens that were seen of the last settlement; undefined when they teach nothing. */
  seen(): number | undefined
  logged: string[]
}

export type GatewayOptions = OpenaiOptions & {
  /** The upstreams of the UPSTREAMS file. Without them, the echo. */
  declared?: object[]
  admitted?: Partial<Admitted>
  ensure?: () => 'extended' | 'gone'
  /** The write of each admission; at once without it. */
  durable?: () => Promise<void>
  upstreams?: Partial<UpstreamsOptions>
  decorate?: (app: FastifyInstance) => void
  imageUrls?: 'vet' | 'fetch' | 'refuse'
  modelAliases?: string[]
  corsOrigins?: string[]
  egressAllow?: string[]
  lookup?: Lookup
}

const ADMITTED: Admitted = {
  outcome: 'admitted',
  reserved: 1000,
  maxOutputTokens: 4096,
  onAbort: 'Cancel',
  weights: { input: 1000, cachedInput: 1000, output: 1000 },
  ratio: 300,
  hidden: { outputRatio: 1000, hiddenTokens: 0 },
  windows: {
    session: { limit: 1, used: 0, reserved: 0, remaining: 1, resetsAt: null, durationMs: 1 },
    weekly: { limit: 1, used: 0, reserved: 0, remaining: 1, resetsAt: 0, durationMs: 1 },
  },
}

/** Writes an UPSTREAMS file, removed after the test. */
export async function writeUpstreamsFile(t: Test, upstreams: object[]): Promise<string> {
  const folder = await folderFor(t)
  const file = join(folder, 'upstreams.yaml')
  await writeFile(file, JSON.stringify({ upstreams }))
  return file
}

export async function openGateway(t: Test, options: GatewayOptions = {}): Promise<Gateway> {
  const file = options.declared ? await writeUpstreamsFile(t, options.declared) : null
  const upstreams = await openUpstreams({ file, env: () => undefined, log: SILENT, backOffMs: 1, pollMs: 60_000, ...options.upstreams })
  const admissions: Admission[] = []
  const ensured: number[] = []
  const logged: string[] = []
  const settlements: (Settlement | null)[] = []
  let wake = () => {}

  const app: FastifyInstance = fastify({
    logger: { level: 'info', stream: { write: (line: string) => void logged.push(line) } },
    disableRequestLogging: true,
  })
  app.decorate('config', { BRAND: 'SVC', IMAGE_URLS: options.imageUrls ?? 'vet', MODEL_ALIASES: options.modelAliases ?? [], CORS_ORIGINS: options.corsOrigins ?? [] } as FastifyInstance['config'])
  app.decorate('clock', Date.now)
  app.decorate('egress', openEgress({ allow: options.egressAllow ?? [], clock: Date.now, ...(options.lookup ? { lookup: options.lookup } : {}) }))
  app.decorate('store', {} as FastifyInstance['store'])
  app.decorate('upstreams', upstreams)
  app.decorate('derivedKeys', deriveKeys([Buffer.alloc(32, 7)]))
  options.decorate?.(app)
  app.register(errors)
  app.register(cors)
  app.register(fp(async (ops) => void ops.decorate('metrics', { registry: new Registry() }).decorateRequest('startedMs', 0), { name: 'ops' }))
  app.register(fp(standInAuth, { name: 'auth' }))
  app.register(requestBody)
  app.register(
    fp(
      async (metering) => {
        metering.decorateRequest('reservation', null)
        metering.addHook('preHandler', async (request, reply) => {
          const { admits } = request.routeOptions.config
          if (!admits) return
          admissions.push(admits(request))
          let outcome: Promise<Settlement | null> = Promise.resolve(null)
          reply.headers({ 'x-ratelimit-limit-tokens': '1' })
          reply.raw.once('close', async () => {
            settlements.push(await outcome)
            wake()
          })
          request.reservation = reservation(
            { admitted: { ...ADMITTED, ...options.admitted }, durable: options.durable?.() ?? Promise.resolve() },
            (promise) => (outcome = promise),
            (tokens) => {
              ensured.push(tokens)
              return options.ensure?.() ?? 'extended'
            },
          )
        })
      },
      { name: 'metering' },
    ),
  )
  const { declared: _declared, admitted: _admitted, ensure: _ensure, durable: _durable, upstreams: _upstreams, decorate: _decorate, imageUrls: _imageUrls, egressAllow: _egressAllow, lookup: _lookup, ...plugin } = options
  app.register(openai, plugin)
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(async () => {
    app.server.closeAllConnections()
    await app.close()
    await upstreams.close()
  })
  let taken = 0
  return {
    app,
    url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`,
    upstreams,
    admissions,
    ensured,
    logged,
    async settled() {
      while (settlements.length <= taken) await new Promise<void>((resolve) => (wake = resolve))
      const settlement = settlements[taken++]
      if (!settlement) return null
      const { usage, estimated } = settlement
      return { usage, estimated }
    },
    seen: () => settlements[taken - 1]?.seen,
  }
}

async function standInAuth(app: FastifyInstance): Promise<void> {
  app.decorateRequest('caller', null)
  app.addHook('onRequest', async (request) => {
    request.caller = { key: { subscription: 'acme/first', product: 'Coding', keyId: 'key-1', cap: null }, earlierFailure: async () => null } as unknown as Caller
  })
}

function reservation(
  admission: Pick<OpenReservation, 'admitted' | 'durable'>,
  settleWith: OpenReservation['settleWith'],
  ensure: (tokens: number) => 'extended' | 'gone',
): OpenReservation {
  const growth = openGrowth(admission.admitted.reserved, async (tokens) => (ensure(tokens) === 'gone' ? 'gone' : tokens), () => {})
  return {
    id: 'reservation', ...admission, settleWith, ...growth,
    whenStored: (told) => void admission.durable.then(() => told.stored(), (error: unknown) => told.lost(error)),
    openSettlement() {
      const { promise, resolve } = Promise.withResolvers<Settlement | null>()
      settleWith(promise)
      return resolve
    },
  }
}

export const MESSAGES = [{ role: 'user', content: 'Hello' }]

export type Loose = any // oxlint-disable-line typescript/no-explicit-any -- answers are compared, not typed

export type TestResponse = { status: number; headers: Record<string, string>; text: string; body: Loose }

/** Posts a body and reads the whole answer, which must be valid on the Messages wire. A string is sent unchanged. */
export async function post(gateway: Gateway, path: string, body: unknown, headers: Record<string, string> = {}): Promise<TestResponse> {
  const answer = await fetch(gateway.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await answer.text()
  const parsed = text.startsWith('{') ? JSON.parse(text) : null
  const isMessages = path.startsWith('/v1/messages')
  if (isMessages && parsed) checkMessagesJson(parsed)
  if (isMessages && !parsed) checkMessagesStream(text)
  return { status: answer.status, headers: Object.fromEntries(answer.headers), text, body: parsed }
}

export const chat = (gateway: Gateway, more: object = {}) =>
  post(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, ...more })
export const responses = (gateway: Gateway, more: object = {}) =>
  post(gateway, '/v1/responses', { model: 'svc-code', input: 'Hello', ...more })

/** Starts a streamed request and resolves with the unread response. */
export async function startStream(gateway: Gateway, path: string, body: object): Promise<IncomingMessage> {
  const sent = httpRequest(gateway.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, agent: false })
  sent.on('error', () => {})
  sent.end(JSON.stringify(body))
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  answer.on('error', () => {})
  return answer
}

/** The data of each event, parsed except `[DONE]`. */
export function dataOf(text: string): Loose[] {
  return text
    .split('\n\n')
    .flatMap((block) =>
      block
        .split('\n')
        .filter((line) => line.startsWith('data: '))
        .map((line) => line.slice(6)),
    )
    .map((data) => (data === '[DONE]' ? data : JSON.parse(data)))
}

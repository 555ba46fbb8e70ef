/** `/usage/coding/requests`: the newest coding requests of a plan, page by page or as CSV, of one key or all. Behind a session. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { KEPT_REQUESTS, type CodingRequest, type RequestPosition } from '../../src/domain/coding-requests.ts'
import { iso } from '../../src/domain/iso-time.ts'
import { readCursor, writeCursor } from '../../src/domain/page-cursors.ts'
import { sendCsv } from './csv.ts'
import { keyNamesOf, planOf, plansOf } from './plans.ts'
import { sessionOf } from './sessions.ts'

const PAGE = 20
const Query = Type.Object({
  plan: Type.Optional(Type.String({ maxLength: 253 })),
  format: Type.Optional(Type.Enum(['json', 'csv'])),
  cursor: Type.Optional(Type.String({ maxLength: 200 })),
  /** The name of a key: its requests alone. */
  key: Type.Optional(Type.String({ maxLength: 253 })),
})

/** Registers the route. Times are ISO; a key that was removed has no name. */
export function requestListRoute(app: FastifyInstance): void {
  app.withTypeProvider<TypeBoxTypeProvider>().get('/usage/coding/requests', { schema: { querystring: Query } }, async (request, reply) => {
    const { plan: name, format, cursor, key } = request.query
    const plans = await plansOf(app, sessionOf(request).tenant)
    const plan = planOf(plans, 'coding', name)
    const names = await keyNamesOf(app, plans)
    const shown = (one: CodingRequest) => described(one, names.get(one.keyId) ?? null)
    const isAsked = (one: CodingRequest) => key === undefined || names.get(one.keyId) === key
    // No index has the keys: all that are kept are few.
    const most = key === undefined && format !== 'csv' ? PAGE + 1 : KEPT_REQUESTS
    const found = (await app.store.requests(plan.record.id, cursor === undefined ? null : positionOf(cursor), most)).filter(isAsked)
    if (format === 'csv') return sendCsv(reply, `coding-requests-${plan.name}`, found.map(shown))
    const page = found.slice(0, PAGE)
    const last = found.length > PAGE ? page.at(-1) : undefined
    return { data: page.map(shown), has_more: last !== undefined, next_cursor: last ? writeCursor(`${last.at}.${last.id}`) : null }
  })
}

function described({ id, at, durationMs, status, code, isComplete, usage, charged }: CodingRequest, key: string | null) {
  return {
    time: iso(at),
    key,
    input: usage?.input ?? null,
    cached_input: usage?.cachedInput ?? null,
    output: usage?.output ?? null,
    charged,
    outcome: isComplete ? (code ?? (status < 400 ? 'completed' : String(status))) : 'client_left',
    status,
    duration_ms: durationMs,
    id,
  }
}

function positionOf(cursor: string): RequestPosition {
  const [at = '', id = ''] = readCursor(cursor, /^(\d{1,15})\.([\w-]{1,100})$/)
  return { at: Number(at), id }
}

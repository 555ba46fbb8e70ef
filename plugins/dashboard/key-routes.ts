/**
 * `/dashboard/api/keys`: list, issue, reveal, rotate, limit, suspend, resume, revoke. The dashboard is one more author of ApiKeys: it changes the
 * resource, and the controller does the rest. Every change names the revision that the person has seen.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { open } from '../../src/domain/api-keys.ts'
import { Failure, overLimit } from '../../src/domain/errors.ts'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { MAX_KEYS, type ApiKeySpec, type ChangedKey, type KeyEdit, type Resources } from '../../src/backends/resources/resources.ts'
import { described, isReplaced, NOT_MADE, openKeys, seenKey, stateOf, usableVersion, type TenantKey } from './keys.ts'
import { lockOf } from './plans.ts'
import { sessionOf } from './sessions.ts'

const Name = Type.String({ minLength: 1, maxLength: 63, pattern: FIELD_PATTERNS.label.pattern })
const Params = Type.Object({ name: Name })
const Limit = Type.Object(
  { weekly_tokens: Type.Optional(Type.Integer({ minimum: 1 })), amount_per_period: Type.Optional(Type.String({ maxLength: 20 })) },
  { additionalProperties: false },
)
const NewKey = Type.Object(
  { name: Name, plan: Name, limit: Type.Optional(Limit), expires_at: Type.Optional(Type.String({ format: 'date-time' })) },
  { additionalProperties: false },
)
const Edit = Type.Object({ revision: Type.String({ pattern: FIELD_PATTERNS.keyRevision.pattern }) }, { additionalProperties: false })

const LimitEdit = Type.Object(
  { revision: Type.String({ pattern: FIELD_PATTERNS.keyRevision.pattern }), limit: Type.Union([Limit, Type.Null()]) },
  { additionalProperties: false },
)

const ASK_OPERATOR = 'Ask whoever operates the service to delete some.'
const STATES = { suspend: 'Suspended', resume: 'Active', revoke: 'Revoked' } as const

/** Registers the routes, behind a session. What this process may not do is refused with `key_management_off`. */
export function keyRoutes(app: FastifyInstance): void {
  const keys = openKeys(app)
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()
  const shown = (key: TenantKey) => described(key, app.clock())

  function author(): Resources {
    if (!keys.resources) throw new Failure('key_management_off')
    return keys.resources
  }

  async function change(
    request: FastifyRequest,
    name: string,
    revision: string,
    editOf: (key: TenantKey, spec: ApiKeySpec) => KeyEdit,
  ): Promise<object> {
    const resources = author()
    const { tenant } = sessionOf(request)
    const key = await keys.find(request, tenant, name)
    const seen = seenKey(revision)
    const read = await resources.readKeys(tenant, name)
    if (read.outcome === 'forbidden') throw new Failure('key_management_off')
    const [found] = read.keys.map(({ key }) => key)
    if (!found) throw new Failure('not_found')
    if (found.metadata.uid !== seen.uid || found.metadata.generation !== seen.generation) throw new Failure('conflict')
    const edit = editOf(key, found.spec)
    refuseUnchanged(await resources.changeKey({ namespace: tenant, name }, edit, seen))
    request.log.info(
      { event: 'key_changed', key: name, keyId: found.metadata.uid, user: sessionOf(request).session.user.id, ...edit },
      'API key changed',
    )
    return shown(await keys.find(request, tenant, name))
  }

  routes.get('/keys', async (request) => {
    const { keys: found, plans } = await keys.list(request, sessionOf(request).tenant)
    return { data: found.map(shown), locked: plans.filter(({ reason }) => reason !== null).map(lockOf) }
  })
  routes.get('/keys/:name', { schema: { params: Params } }, async (request) =>
    shown(await keys.find(request, sessionOf(request).tenant, request.params.name)),
  )

  routes.post('/keys', { schema: { body: NewKey } }, async (request, reply) => {
    const resources = author()
    const { tenant, session } = sessionOf(request)
    const { name, plan: planName, limit, expires_at: expirationTime } = request.body
    const { keys: present, plans, declared } = await keys.list(request, tenant)
    const plan = plans.find((candidate) => candidate.name === planName)
    if (!plan)
      throw new Failure('invalid_request', {
        message: 'You have no plan of that name.',
        param: 'plan',
        errors: [{ path: '/plan', code: 'not_found', message: 'is not a plan of yours' }],
      })
    if (plan.reason !== null) throw new Failure('plan_inactive')
    const counted = present.filter((key) => key.plan.name === planName && !['Revoked', 'Expired'].includes(stateOf(key, app.clock()).state))
    if (counted.length >= plan.record.terms.maxKeys)
      throw new Failure('conflict', { message: `The plan has as many keys as it allows: ${plan.record.terms.maxKeys}. Revoke one first.` })
    if (declared.length >= MAX_KEYS) {
      throw new Failure('conflict', {
        message: `You have as many keys as you may have: ${MAX_KEYS}, revoked ones included. ${ASK_OPERATOR}`,
      })
    }
    const spec = {
      planRef: { name: planName },
      ...(limit ? { limit: specLimit(limit) } : {}),
      ...(expirationTime ? { expirationTime } : {}),
    }
    const issued = await resources.issueKey({ namespace: tenant, name, spec })
    if (issued.outcome === 'exists') throw new Failure('conflict', { message: 'A key of that name exists already.' })
    if (issued.outcome === 'full') throw new Failure('conflict', { message: `No further key can be issued here. ${ASK_OPERATOR}` })
    if (issued.outcome !== 'created') refuseUnchanged(issued)
    request.log.info({ event: 'key_issued', key: name, plan: planName, user: session.user.id }, 'API key issued')
    return reply.code(201).send(shown(await keys.find(request, tenant, name)))
  })

  routes.post('/keys/:name/reveal', { schema: { params: Params } }, async (request) => {
    if (!app.hasDecorator('sealingKeys'))
      throw new Failure('key_management_off', { message: 'API keys are not revealed here. Read it in the Secret that the ApiKey names.' })
    const { tenant, session } = sessionOf(request)
    const key = await keys.find(request, tenant, request.params.name)
    const { state } = stateOf(key, app.clock())
    if (state === 'Suspended') throw new Failure('key_suspended')
    const version = state === 'Active' ? usableVersion(key, app.clock()) : null
    if (!version) throw new Failure('not_found')
    if (isReplaced(version, key)) throw new Failure('conflict', { message: NOT_MADE })
    const text = open(version.sealed, version.id, app.sealingKeys)
    if (text === null)
      throw overLimit('sealed_key', { message: 'The key cannot be decrypted. Rotate it, or ask whoever operates the service.' })
    request.log.info({ event: 'key_revealed', keyId: version.id, user: session.user.id }, 'API key revealed')
    return { key: text }
  })

  routes.post('/keys/:name/rotate', { schema: { params: Params, body: Edit } }, async (request) =>
    change(request, request.params.name, request.body.revision, ({ versions }, { rotationRevision }) => ({
      rotationRevision: Math.max(rotationRevision, versions[0]?.revision ?? 0) + 1,
    })),
  )
  routes.post('/keys/:name/limit', { schema: { params: Params, body: LimitEdit } }, async (request) =>
    change(request, request.params.name, request.body.revision, () => ({ limit: request.body.limit && specLimit(request.body.limit) })),
  )
  for (const [action, state] of Object.entries(STATES)) {
    routes.post(`/keys/:name/${action}`, { schema: { params: Params, body: Edit } }, async (request) =>
      change(request, request.params.name, request.body.revision, () => ({ state })),
    )
  }
}

function specLimit({
  weekly_tokens: weeklyTokens,
  amount_per_period: amountPerPeriod,
}: {
  weekly_tokens?: number
  amount_per_period?: string
}): NonNullable<ApiKeySpec['limit']> {
  return { ...(weeklyTokens === undefined ? {} : { weeklyTokens }), ...(amountPerPeriod === undefined ? {} : { amountPerPeriod }) }
}

/** Throws the failure of a change that was not made. */
function refuseUnchanged(changed: ChangedKey): void {
  if (changed === null) throw new Failure('not_found')
  if (changed.outcome === 'conflict') throw new Failure('conflict')
  if (changed.outcome === 'forbidden') throw new Failure('key_management_off')
  if (changed.outcome !== 'refused') return
  const errors = changed.faults.map((fault) => ({ path: pointerOf(fault), code: 'refused', message: fault.replace(/^[\w.[\]]+: /, '') }))
  throw new Failure('invalid_request', { message: changed.faults.join('; '), errors })
}

/** Member of the request for the place in the ApiKey with which a fault begins. */
function pointerOf(fault: string): string {
  if (fault.startsWith('metadata.name')) return '/name'
  if (fault.startsWith('spec.limit')) return '/limit'
  if (fault.startsWith('spec.expirationTime')) return '/expires_at'
  return fault.startsWith('spec.planRef') ? '/plan' : ''
}

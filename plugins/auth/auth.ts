/** onRequest: the API key of the Authorization header → `request.caller` (specification, section 5; order of checks in `docs/errors.md`). */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/domain/errors.ts'
import { hashKey, refusal, wellFormed, type KeyVersion } from '../../src/domain/api-keys.ts'
import { apiOf, type Api } from '../../src/domain/plans.ts'
import { takeOne, type Rate } from '../../src/domain/rate-limit.ts'
import type { Creating, Stale } from '../../src/domain/subscription/commands.ts'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'

declare module 'fastify' {
  interface FastifyBaseLogger {
    /** Pino's: adds to what every further line says. Much cheaper than a child for each request. */
    setBindings(bindings: Record<string, unknown>): void
  }
  interface FastifyRequest {
    /** Who asks. Null on routes outside the scope of API keys. */
    caller: Caller | null
  }
  interface FastifyContextConfig {
    /** The product whose keys this route takes. */
    api?: Api
    /** The route creates something: an inactive plan is told before anything about the request. */
    creates?: boolean
    /** Whatever the route does well it does by `creating`, which proves the key: one that is remembered will do. */
    proves?: boolean
  }
}

export type Caller = {
  key: KeyVersion
  /** Runs an operation that creates: a revoked key, or one that moved to another plan, stops at its next request everywhere. */
  creating: Creating
  /**
   * The failure that goes before what is wrong with the request itself: of the key, as it is now, or, on a route that creates, of its plan. Null when both are in order.
   */
  earlierFailure(): Promise<Failure | null>
  /** Counts a request that is not counted by the plan's own rate. Throws `rate_limited`. */
  countRead(): void
}

const REMEMBERED_KEYS = 10_000
/** What one key may read from one replica. What creates is counted exactly, in the subscription's record. */
const READS_PER_MINUTE = 6_000
/** A key can change between being read and being used, but not for ever. */
const STALE_TRIES = 5

async function auth(app: FastifyInstance): Promise<void> {
  const remembered = new Map<string, { key: KeyVersion; keysVersion: number }>()
  const reads = new Map<string, Rate>()

  function remember(hash: string, key: KeyVersion, keysVersion: number): void {
    putNewest(remembered, hash, { key, keysVersion })
  }

  function countRead(keyId: string): void {
    const decision = takeOne(reads.get(keyId) ?? { tat: 0 }, READS_PER_MINUTE, app.clock())
    if (!decision.allowed) throw new Failure('rate_limited', { retryAfterSeconds: Math.max(1, Math.ceil(decision.retryAfterMs / 1000)) })
    putNewest(reads, keyId, decision.rate)
  }

  function check(key: KeyVersion | null, api: Api | undefined): KeyVersion {
    if (!key) throw new Failure('invalid_api_key')
    const refused = refusal(key, app.clock())
    if (refused === 'invalid_api_key') throw new Failure('invalid_api_key')
    if (api && apiOf(key.product) !== api) throw new Failure('wrong_product')
    if (refused) throw new Failure(refused)
    return key
  }

  async function readKey(hash: string, api: Api | undefined): Promise<KeyVersion> {
    return check(await app.store.findKey(hash), api)
  }

  function callerOf(hash: string, first: KeyVersion, firstVersion: number, request: FastifyRequest): Caller {
    const { api, creates } = request.routeOptions.config
    let keysVersion = firstVersion
    const caller: Caller = {
      key: first,
      async creating(run) {
        for (let tries = 0; tries < STALE_TRIES; tries++) {
          const { key } = caller
          const answer = await run(key.subscription, { keyId: key.keyId, keyCap: key.cap, keysVersion })
          if (answer.outcome !== 'stale') return answer as Exclude<typeof answer, Stale>
          remembered.delete(hash)
          caller.key = await readKey(hash, api)
          // A version says nothing about another subscription, to which the key may have moved.
          keysVersion = caller.key.subscription === key.subscription ? (answer as { outcome: string } as Stale).keysVersion : 0
          remember(hash, caller.key, keysVersion)
        }
        throw new Failure('unavailable', { retryAfterSeconds: 1, cause: new Error('the key changed at every try') })
      },
      countRead: () => countRead(caller.key.keyId),
      async earlierFailure() {
        if (!creates) return null
        remembered.delete(hash)
        caller.key = await readKey(hash, api)
        // Requests that are refused take nothing from the plan's rate.
        caller.countRead()
        const reason = inactiveReason(await app.store.subscription(caller.key.subscription), app.clock())
        return reason && planInactive(reason)
      },
    }
    return caller
  }

  app.decorateRequest('caller', null)
  app.addHook('onRequest', async (request) => {
    const { api, creates, admits, proves } = request.routeOptions.config
    const text = bearer(request.headers.authorization)
    if (text === null || !wellFormed(text)) throw new Failure('invalid_api_key')
    const hash = hashKey(text)
    const known = remembered.get(hash)
    // What is admitted is proved as well; and what is refused is told after another look at the key.
    const usable = (proves || admits) && known && refusal(known.key, app.clock()) === null && apiOf(known.key.product) === api
    const key = usable ? known.key : await readKey(hash, api)
    if (!creates) countRead(key.keyId)
    const keysVersion = known?.key.subscription === key.subscription ? known.keysVersion : 0
    request.caller = callerOf(hash, key, keysVersion, request)
    request.log.setBindings({ tenant: key.tenant, keyId: key.id })
  })
}

/** Puts an entry last, and drops the first when there are too many. */
function putNewest<V>(map: Map<string, V>, name: string, value: V): void {
  map.delete(name)
  map.set(name, value)
  const oldest = map.size > REMEMBERED_KEYS ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}

/** The token of `Authorization: Bearer <token>` (RFC 6750, section 2.1), or null. */
function bearer(header: string | undefined): string | null {
  return /^Bearer +([\x21-\x7e]{1,256})$/i.exec(header ?? '')?.[1] ?? null
}

export default fp(auth, { name: 'auth', fastify: '5.x', dependencies: ['errors'] })

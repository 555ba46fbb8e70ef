/**
 * Authentication. onRequest: the API key of the Authorization header → `request.caller` (specification, section 5; order of checks in `docs/errors.md`).
 * Also the cache of API keys, the rate limit of reads, and when keys were last used.
 */
import type { FastifyContextConfig, FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Failure, overLimit } from '../../src/domain/errors.ts'
import { hashKey, refusal, wellFormed, wrongProduct, type KeyVersion } from '../../src/domain/api-keys.ts'
import { speaksMessages } from '../../src/http/message-errors.ts'
import { apiOf, planNameOf, type Api } from '../../src/domain/plans.ts'
import { putNewest } from '../../src/domain/long-lived-maps.ts'
import { openRates } from '../../src/domain/rate-limit.ts'
import type { CallerKey } from '../../src/tasks/submit.ts'
import type { Creating, CreatingNow, Stale } from '../../src/domain/subscription/commands.ts'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { openKeyUse } from './key-use.ts'

declare module 'fastify' {
  interface FastifyBaseLogger {
    /** Pino's own: adds fields to all further lines. Much cheaper than a child logger per request. */
    setBindings(bindings: Record<string, unknown>): void
  }
  interface FastifyRequest {
    /** The caller by its API key, or in the dashboard by its session. Null on routes that take neither. */
    caller: Caller | null
  }
  interface FastifyContextConfig {
    /** The product whose keys this route takes. */
    api?: Api
    /** The route creates something: an inactive plan is refused before the request is validated. */
    creates?: boolean
    /** The route acts only through `creating`, which verifies the key in the store: a cached key is sufficient before it. */
    proves?: boolean
  }
}

export type Caller = {
  key: CallerKey
  /** What this process counts the caller's streams, waits and bodies by: the id of its key, or that of its session. */
  countedBy: string
  /** Reads the key anew: whether it is still valid. Throws `Unavailable`. */
  isValid(): Promise<boolean>
  /** Runs an operation that creates, and reads the key again when it has changed: a revoked or moved key takes effect at its next request on all replicas. */
  creating: Creating
  creatingNow: CreatingNow
  /** The failure that takes precedence over an invalid request: of the current key or, on a route that creates, of its plan. Null when both are active. */
  earlierFailure(): Promise<Failure | null>
  /** Counts a request that the plan's own rate does not count. Throws `rate_limited`. */
  countRead(): void
}

const MAX_CACHED_KEYS = 10_000
/** Per key and replica. Requests that create are counted exactly, in the subscription's record. */
const READS_PER_MINUTE = 6_000
/** A key can change between its read and its use. */
const MAX_STALE_ATTEMPTS = 5
const KEY_USE_MS = 5_000

async function auth(app: FastifyInstance): Promise<void> {
  const cachedKeys = new Map<string, { key: KeyVersion; keysVersion: number }>()
  const countRead = openRates('key_reads', READS_PER_MINUTE, MAX_CACHED_KEYS)
  const keyUse = openKeyUse(app.store)

  function cacheKey(hash: string, key: KeyVersion, keysVersion: number): void {
    putNewest(cachedKeys, hash, { key, keysVersion }, MAX_CACHED_KEYS)
  }

  function check(key: KeyVersion | null, api: Api | undefined): KeyVersion {
    if (!key) throw new Failure('invalid_api_key')
    const refused = refusal(key, app.clock())
    if (refused === 'invalid_api_key') throw new Failure('invalid_api_key')
    if (api && apiOf(key.product) !== api) throw wrongProduct(api)
    if (refused) throw new Failure(refused)
    return key
  }

  async function readKey(hash: string, api: Api | undefined): Promise<KeyVersion> {
    const key = check(await app.store.findKey(hash), api)
    keyUse.note(key.id, app.clock())
    return key
  }

  function callerOf(hash: string, first: KeyVersion, firstVersion: number, { api, creates }: FastifyContextConfig): Caller {
    let keysVersion = firstVersion
    const caller: Caller = {
      key: first,
      countedBy: first.keyId,
      async isValid() {
        const key = await app.store.findKey(hash)
        return key !== null && refusal(key, app.clock()) === null
      },
      async creating(run) {
        for (let attempts = 0; attempts < MAX_STALE_ATTEMPTS; attempts++) {
          const { key } = caller
          const answer = await run(key.subscription, { keyId: key.keyId, keyCap: key.cap, keysVersion })
          if (answer.outcome !== 'stale') {
            keyUse.note(key.id, app.clock())
            return answer as Exclude<typeof answer, Stale>
          }
          cachedKeys.delete(hash)
          const current = await readKey(hash, api)
          caller.key = current
          // The key may have moved to another subscription, whose versions are counted apart.
          keysVersion = current.subscription === key.subscription ? (answer as { outcome: string } as Stale).keysVersion : 0
          cacheKey(hash, current, keysVersion)
        }
        throw overLimit('key_changes', { retryAfterSeconds: 1, cause: new Error('the key changed at every attempt') })
      },
      creatingNow(run) {
        const { key } = caller
        const answer = run(key.subscription, { keyId: key.keyId, keyCap: key.cap, keysVersion })
        if (answer === null || answer.outcome === 'stale') return null
        keyUse.note(key.id, app.clock())
        return answer as Exclude<typeof answer, Stale>
      },
      countRead: () => countRead(caller.key.keyId, app.clock()),
      async earlierFailure() {
        if (!creates) return null
        cachedKeys.delete(hash)
        caller.key = await readKey(hash, api)
        // A refused request counts as a read, because it does not reach the plan's own rate.
        caller.countRead()
        const reason = inactiveReason(await app.store.subscription(caller.key.subscription), app.clock())
        return reason && planInactive(reason)
      },
    }
    return caller
  }

  app.decorateRequest('caller', null)
  function authenticated(request: FastifyRequest, config: FastifyContextConfig, hash: string, key: KeyVersion): void {
    const cached = cachedKeys.get(hash)
    if (!config.creates) countRead(key.keyId, app.clock())
    const keysVersion = cached?.key.subscription === key.subscription ? cached.keysVersion : 0
    request.caller = callerOf(hash, key, keysVersion, config)
    request.log.setBindings({ tenant: key.tenant, plan: planNameOf(key.subscription), keyId: key.id })
  }

  app.addHook('onRequest', (request, _reply, done) => {
    // Fastify makes the object of `routeOptions` at each access.
    const { config } = request.routeOptions
    const { api, admits, proves, messages } = config
    const text = speaksMessages(messages ?? (request.is404 ? 'by version' : undefined), request.headers)
      ? keyOfEither(request.headers)
      : bearer(request.headers.authorization)
    if (text === null) throw new Failure('invalid_api_key')
    const hash = hashKey(text)
    const cached = cachedKeys.get(hash)
    // Admission verifies the key as well, and a cached key that is refused is read again.
    if ((proves || admits) && cached && refusal(cached.key, app.clock()) === null && apiOf(cached.key.product) === api) {
      authenticated(request, config, hash, cached.key)
      return done()
    }
    // A key of the cache was well formed; the checksum spares the store what is none.
    if (!wellFormed(text)) throw new Failure('invalid_api_key')
    // Fastify takes a promise as well.
    return readKey(hash, api).then((key) => authenticated(request, config, hash, key))
  })

  const writing = periodicTask(KEY_USE_MS, keyUse.flush, (err) =>
    app.log.warn({ event: 'key_use_unwritten', err }, 'time of last use of API keys cannot be written'),
  )
  app.addHook('onReady', writing.start)
  app.addHook('onClose', writing.stop)
}

/** The token of `Authorization: Bearer <token>` (RFC 6750, section 2.1), or null. */
function bearer(header: string | undefined): string | null {
  return /^Bearer +([\x21-\x7e]{1,256})$/i.exec(header ?? '')?.[1] ?? null
}

/** The key of the Messages wire: a Bearer token or `x-api-key`. Throws `invalid_api_key` when they differ. */
function keyOfEither({ authorization, 'x-api-key': header }: FastifyRequest['headers']): string | null {
  if (header === undefined) return bearer(authorization)
  const key = typeof header === 'string' && /^[\x21-\x7e]{1,256}$/.test(header) ? header : null
  if (authorization !== undefined && bearer(authorization) !== key)
    throw new Failure('invalid_api_key', {
      message: 'Authorization and x-api-key hold different keys. Send one of them, or one key in both.',
    })
  return key
}

export default fp(auth, { name: 'auth', fastify: '5.x', dependencies: ['errors'], decorators: { fastify: ['clock', 'store'] } })

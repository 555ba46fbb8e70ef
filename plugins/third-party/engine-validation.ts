/** Validates third-party engines: fills in optional members and refuses results that would break money or links. */
import { unlessAborted } from '../../src/concurrency/unless-aborted.ts'
import { notMade, type Engine, type EngineRequest, type Made, type NotMade, type OpenEngine } from '../../src/backends/engines/engine.ts'
import type { Amounts, Limits } from '../../src/domain/media-generations.ts'
import { mediaInfo } from '../../src/domain/media-info.ts'
import { amountsAtMost } from '../../src/domain/media-operations.ts'
import { TASK_ERRORS } from '../../src/domain/task.ts'

/** What a plugin returns from `open`. Optional: `missing`, `quote`, `close`, `facts` and `used` of a result, `message` of a failure. */
type Given = Pick<Engine, 'offers'> &
  Partial<Pick<Engine, 'missing' | 'quote' | 'close'>> & { run(...args: Parameters<Engine['run']>): Promise<unknown> }

/** Wraps an engine type of a plugin. A faulty engine throws when it is opened; a faulty result is an `internal` failure of the run. */
export function guarded(type: string, open: unknown): OpenEngine {
  if (typeof open !== 'function') throw new TypeError(`engines of type ${type} have no function that opens them`)
  return async (name, options) => {
    const given = (await open(name, options)) as Given
    checkOffers(given)
    const quote = (request: EngineRequest, limits: Limits): Amounts =>
      given.quote ? amounts(given.quote(request, limits)) : amountsAtMost(request, limits)
    return {
      get offers() {
        return given.offers
      },
      get missing() {
        return given.missing ?? {}
      },
      quote,
      async run(request, control) {
        // An engine that ignores its signal must not block the worker.
        const answer = await unlessAborted(given.run(request, control), control.signal)
        control.signal.throwIfAborted()
        try {
          return checked(answer, request, quote(request, control.limits))
        } catch (cause) {
          return notMade('internal', false, cause)
        }
      },
      close: async () => given.close?.(),
    }
  }
}

function checkOffers(given: Partial<Given> | undefined): void {
  const good = Object.values(given?.offers ?? {}).map(
    ({ formats }) => Array.isArray(formats) && formats.length > 0 && formats.every((format) => /^[a-z0-9]{1,10}$/.test(format)),
  )
  if (good.length === 0 || good.includes(false))
    throw new Error('offers must name the kinds and operations that are made, each with the formats that are written')
  if (typeof given?.run !== 'function') throw new Error('run must be a function')
}

function checked(answer: unknown, request: EngineRequest, quoted: Amounts): Made | NotMade {
  const { outcome, ...given } = answer as Partial<Omit<Made, 'outcome'>> & Partial<Omit<NotMade, 'outcome'>> & { outcome?: string }
  if (outcome === 'failed') {
    if (!given.code || !Object.hasOwn(TASK_ERRORS, given.code)) throw new Error(`${given.code} is no code of a failure`)
    // Our own sentence: the plugin's might name a provider.
    return {
      ...notMade(given.code, given.retryable === true, given.cause),
      ...(given.retryAfterMs !== undefined && { retryAfterMs: wholeFact('retryAfterMs', given.retryAfterMs) ?? 0 }),
      ...(given.input !== undefined && { input: wholeFact('input', given.input) ?? 0 }),
      ...(given.keepsJob === true && { keepsJob: true }),
    }
  }
  const { body, contentType = '' } = given
  if (outcome !== 'made' || !body || !(body instanceof Uint8Array || Symbol.asyncIterator in body))
    throw new Error('run must return what was made, or a failure')
  if (!/^(image|video|audio)\/[a-z0-9.+-]+$/.test(contentType)) throw new Error(`${contentType} is not a media content type`)
  const known = 'width' in request ? request : body instanceof Uint8Array ? mediaInfo(body, body.length) : null
  const { width = known?.width ?? null, height = known?.height ?? null, durationMs = known?.durationMs ?? null } = given.facts ?? {}
  const facts = { width: wholeFact('width', width), height: wholeFact('height', height), durationMs: wholeFact('durationMs', durationMs) }
  return {
    outcome,
    body,
    contentType,
    facts,
    used: given.used ? amounts(given.used) : 'width' in request ? quoted : measured(facts, quoted),
  }
}

/** A measure of the result, rounded up: what is charged by it must be whole. */
function wholeFact(name: string, value: unknown): number | null {
  if (value === null) return null
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0)
    throw new Error(`facts.${name} must be a number that is not negative, or null: ${String(value)}`)
  return Math.ceil(value)
}

/** The amounts of a result, as far as it was measured; the rest is what was quoted. */
function measured({ width, height, durationMs }: Made['facts'], quoted: Amounts): Amounts {
  return {
    Job: 1000,
    Second: durationMs ?? quoted.Second,
    Megapixel: width === null || height === null ? quoted.Megapixel : Math.ceil((width * height) / 1000),
  }
}

/** Amounts are non-negative whole thousandths: a negative one would credit money. */
function amounts({ Job = 0, Second = 0, Megapixel = 0 }: Partial<Amounts>): Amounts {
  const all = { Job, Second, Megapixel }
  if (!Object.values(all).every((amount) => Number.isSafeInteger(amount) && amount >= 0))
    throw new Error(`${JSON.stringify(all)} are no amounts: they are whole thousandths of a unit, and not negative`)
  return all
}

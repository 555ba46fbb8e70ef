/** The request and response headers of the Media API. */
import { createHash } from 'node:crypto'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { invalid } from '../../src/domain/request-validation.ts'

const ALLOWED = new RegExp(FIELD_PATTERNS.idempotencyKey.pattern)
/** A string of RFC 8941, section 3.3.3. */
const STRING = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/

/** `Idempotency-Key`, bare or as a string of RFC 8941: 1 to 255 visible ASCII characters. Null when there is none; anything else is `invalid_request`. */
export function idempotencyKey(header: string | string[] | undefined): string | null {
  if (header === undefined) return null
  const given = [header].flat().join(', ')
  const key = given.startsWith('"') ? STRING.exec(given)?.[1]?.replaceAll(/\\(.)/g, '$1') : given
  if (key !== undefined && ALLOWED.test(key)) return key
  throw invalid(
    [
      {
        path: '/Idempotency-Key',
        code: 'format',
        message: `${FIELD_PATTERNS.idempotencyKey.must}, bare or as a string in double quotes (RFC 8941)`,
      },
    ],
    'header',
  )
}

const LONGEST_WAIT_SECONDS = 60

/** The seconds of `Prefer: wait=N` (RFC 7240, section 4.3), at most 60; null without that preference. Other preferences are ignored. */
export function preferredWait(header: string | string[] | undefined): number | null {
  const found = /(?:^|[,;\s])wait=(\d{1,6})(?=$|[,;\s])/i.exec([header ?? ''].flat().join(','))
  return found ? Math.min(Number(found[1]), LONGEST_WAIT_SECONDS) : null
}

/** A strong ETag over the bytes of a body. */
export function etagOf(body: string): string {
  return `"${createHash('sha256').update(body).digest('base64url').slice(0, 27)}"`
}

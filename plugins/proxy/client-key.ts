/** Finds the key of a request in places other than its `Authorization`, where it would reach the service and its logs. */
import type { FastifyRequest } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'

/** Shorter than any key, and longer than what would be found by chance. */
const LENGTH_MIN = 20
const BASE64 = /[\w+/-]{20,}/g

/** The key that the request was admitted by. */
export function keyOf({ headers }: Pick<FastifyRequest, 'headers'>): string | null {
  const key = headers.authorization?.split(' ').at(-1) ?? ''
  return key.length < LENGTH_MIN ? null : key
}

/** Whether a text has the key in it: as it is, percent-encoded, or in Base64, as in Basic credentials. */
export function hasKey(text: string, key: string | null): boolean {
  if (key === null) return false
  return (
    text.includes(key) ||
    decoded(text).includes(key) ||
    (text.match(BASE64) ?? []).some((part) => Buffer.from(part, 'base64').includes(key))
  )
}

/** A path and query without the parameters that have the key in them. Throws `invalid_request` where the path has it. */
export function withoutKey(target: string, key: string | null): string {
  const [path = '', query] = split(target)
  if (hasKey(path, key))
    throw new Failure('invalid_request', { message: 'The path contains your API key. Send it as `Authorization: Bearer <API_KEY>` only.' })
  const kept = query?.split('&').filter((parameter) => !hasKey(parameter, key)) ?? []
  return kept.length > 0 ? `${path}?${kept.join('&')}` : path
}

function split(target: string): [path: string, query?: string] {
  const start = target.indexOf('?')
  return start < 0 ? [target] : [target.slice(0, start), target.slice(start + 1)]
}

/** What is not percent-encoded well is left as it is. */
function decoded(text: string): string {
  return text.replaceAll(/%[0-7][0-9a-f]/gi, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)))
}

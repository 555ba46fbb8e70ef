/**
 * Signed URLs of files: `/files/{id}?exp=…&sig=…`, valid for anybody until they expire. HMAC-SHA256 (RFC 2104) over id and time, under a derived
 * key (`derived-keys.ts`). The same id, time and key always give the same URL.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { KeyList } from './derived-keys.ts'

function signature(id: string, exp: string, key: Buffer): Buffer {
  return createHmac('sha256', key).update(`${id}\n${exp}`).digest()
}

/** The path and query of a signed URL. `expiresAt` is epoch milliseconds, truncated to the second. */
export function signedFileUrl(id: string, expiresAt: number, keys: KeyList): string {
  const exp = String(Math.floor(expiresAt / 1000))
  return `/files/${id}?exp=${exp}&sig=${signature(id, exp, keys[0]).toString('base64url')}`
}

/**
 * Verifies a URL at `now` (epoch milliseconds), in constant time with respect to the signature. Any of the keys may have signed it, so that
 * URLs outlive a rotation. `forged`: we did not sign it; `expired`: genuine and past its time.
 */
export function verifySignedUrl(link: { id: string; exp: string; sig: string }, keys: KeyList, now: number): 'good' | 'forged' | 'expired' {
  const given = Buffer.from(link.sig, 'base64url')
  // Checks every key, so that the time does not reveal which one matches.
  let fits = false
  for (const key of keys) {
    const expected = signature(link.id, link.exp, key)
    fits = (given.length === expected.length && timingSafeEqual(given, expected)) || fits
  }
  // Base64 decoding is lenient: only the canonical spelling is accepted.
  if (!fits || !/^(0|[1-9]\d{0,11})$/.test(link.exp) || given.toString('base64url') !== link.sig) return 'forged'
  return now >= Number(link.exp) * 1000 ? 'expired' : 'good'
}

/**
 * The id of the file that a link of ours leads to, also of an expired one; null for any other address. The signature alone decides: our
 * links work under every name of ours.
 */
export function linkedFile(url: string, keys: KeyList): string | null {
  const parsed = URL.parse(url)
  const id = /^\/files\/([^/]+)$/.exec(parsed?.pathname ?? '')?.[1]
  const [exp, sig] = ['exp', 'sig'].map((name) => parsed?.searchParams.get(name))
  if (id === undefined || !exp || !sig || !/^https?:$/.test(parsed?.protocol ?? '')) return null
  return verifySignedUrl({ id, exp, sig }, keys, 0) === 'forged' ? null : id
}

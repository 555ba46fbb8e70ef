/**
 * Signed links to results: `/files/{id}?exp=…&sig=…`, good for whoever has them, until their time. HMAC-SHA256 (RFC 2104) over id and time, under a key
 * derived by HKDF (RFC 5869) from the sealing key. The same id and time always give the same link while the sealing key is the same.
 */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto'
import type { SealingKeys } from './api-keys.ts'

const PURPOSE = 'tollgate file links v1'

function signature(id: string, exp: string, sealingKey: Buffer): Buffer {
  const key = Buffer.from(hkdfSync('sha256', sealingKey, Buffer.alloc(0), PURPOSE, 32))
  return createHmac('sha256', key).update(`${id}\n${exp}`).digest()
}

/** The path and query of a file's link. `expiresAt` is epoch milliseconds; the link ends with the second that it lies in. */
export function signedFileUrl(id: string, expiresAt: number, sealing: SealingKeys): string {
  const exp = String(Math.floor(expiresAt / 1000))
  return `/files/${id}?exp=${exp}&sig=${signature(id, exp, sealing[0]).toString('base64url')}`
}

/**
 * Judges a link at `now` (epoch milliseconds), in constant time with respect to the signature. Any of the sealing keys may have signed it, so that links outlive a rotation.
 * `forged` is whatever we did not write; `expired` is genuine and past its time.
 */
export function verifySignedUrl(link: { id: string; exp: string; sig: string }, sealing: SealingKeys, now: number): 'good' | 'forged' | 'expired' {
  const given = Buffer.from(link.sig, 'base64url')
  // Counted for every key, so that the time tells nothing about which one fits.
  let fits = false
  for (const key of sealing) {
    const expected = signature(link.id, link.exp, key)
    fits = (given.length === expected.length && timingSafeEqual(given, expected)) || fits
  }
  // One link has one spelling: decoding is more forgiving than we are.
  if (!fits || !/^(0|[1-9]\d{0,11})$/.test(link.exp) || given.toString('base64url') !== link.sig) return 'forged'
  return now >= Number(link.exp) * 1000 ? 'expired' : 'good'
}

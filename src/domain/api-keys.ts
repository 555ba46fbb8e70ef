/**
 * API keys: format, checksum, hash for lookup, sealing (encryption at rest), displayed prefix, and when a key may be used. Randomness is an argument.
 * A raw key exists only in its Secret, sealed in the store, and in the request that carries it.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, hash, timingSafeEqual } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type { Product } from '../backends/resources/resources.ts'
import { Failure } from './errors.ts'
import type { Api } from './plans.ts'

export type KeyState = 'pending' | 'active' | 'suspended' | 'revoked' | 'deleted'

/** One version (revision) of an ApiKey as the store keeps it. Times are epoch milliseconds. */
export type KeyVersion = {
  /** `keyId-revision`. */
  id: string
  /** The ApiKey resource's uid: the same across rotations. */
  keyId: string
  revision: number
  tenant: string
  name: string
  subscription: string
  product: Product
  /** SHA-256 of the key, lower-case hex. */
  hash: string
  /** The sealed key (see `seal`). Null once it can sign nothing any more. */
  sealed: string | null
  /** The first characters, to recognise a key by. */
  prefix: string
  state: KeyState
  /** Weekly tokens (Coding) or micro-units per period (Media) that this key may use; null without a cap. */
  cap: number | null
  issuedAt: number
  expiresAt: number | null
  /** When it was revoked or deleted. */
  endedAt: number | null
  /** End of the rotation overlap: a newer version exists and this one works until then. Null for the newest version. */
  overlapUntil: number | null
  /** The Secret that holds it, or null when none does. */
  secretName: string | null
  /** When a gateway last accepted it, to about a minute. Absent before the first use, and in records of earlier versions. */
  lastUsedAt?: number
  /** Subscriptions that have not been notified of a change of this key. */
  tell: string[]
}

/** The id of a version of a key. */
export function keyVersionId(keyId: string, revision: number): string {
  return `${keyId}-${revision}`
}

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const BODY = 43
const CHECKSUM = 6

function base62(number: bigint, length: number): string {
  let text = ''
  for (let rest = number, i = 0; i < length; i++, rest /= 62n) text = BASE62[Number(rest % 62n)] + text
  return text
}

function checksum(text: string): string {
  return base62(BigInt(crc32(text)), CHECKSUM)
}

/** Makes a key of 256 bits from 32 random bytes: `<prefix>_live_`, 43 base62 characters, 6 of checksum (specification, section 5). */
export function mint(prefix: string, random: Uint8Array): string {
  if (random.length !== 32) throw new RangeError('a key takes 32 random bytes')
  const body = base62(BigInt(`0x${Buffer.from(random).toString('hex')}`), BODY)
  return `${prefix}_live_${body}${checksum(`${prefix}_live_${body}`)}`
}

const AFTER_PREFIX = `_live_[0-9A-Za-z]{${BODY + CHECKSUM}}`
const SHAPE = new RegExp(`^[a-z0-9]{1,16}${AFTER_PREFIX}$`)
const SHAPE_WITHIN = new RegExp(`[a-z0-9]${AFTER_PREFIX}`)

/** True if the text has the format of a key and a valid checksum; a secret scanner can check this offline. */
export function wellFormed(text: string): boolean {
  return SHAPE.test(text) && text.endsWith(checksum(text.slice(0, -CHECKSUM)))
}

/** True if the text, or a part of it, has the form of a key. */
export function containsKey(text: string): boolean {
  return SHAPE_WITHIN.test(text)
}

/** The lookup hash: SHA-256, lower-case hex. A key has 256 random bits, so it needs neither salt nor a slow hash. */
export function hashKey(key: string): string {
  return hash('sha256', key)
}

/** The part of a key that may be shown: its prefix and the first six characters. */
export function shownPrefix(key: string): string {
  return key.slice(0, key.indexOf('_live_') + 6 + 6)
}

/** Sealing keys: the first seals, all of them open. */
export type SealingKeys = readonly [Buffer, ...Buffer[]]

/** Reads a sealing key file: 32 bytes in base64, one per line. Returns null if a line is anything else, or there is none. */
export function parseSealingKeys(text: string): SealingKeys | null {
  const keys = base64Lines(text)
  const [first, ...others] = keys
  return first && keys.every((key) => key.length === 32) ? [first, ...others] : null
}

/** The bytes of each line of a text in base64, without empty lines. */
export function base64Lines(text: string): Buffer[] {
  const lines = text.split('\n').map((line) => line.trim())
  return lines.filter((line) => line !== '').map((line) => Buffer.from(line, 'base64'))
}

function sealingKeyId(key: Buffer): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 8)
}

/** Seals a key with AES-256-GCM, bound to its version's id. `iv` is 12 random bytes. The text names the sealing key, so that it can be rotated. */
export function seal(key: string, versionId: string, sealing: SealingKeys, iv: Uint8Array): string {
  const cipher = createCipheriv('aes-256-gcm', sealing[0], iv)
  cipher.setAAD(Buffer.from(versionId))
  const body = Buffer.concat([cipher.update(key, 'utf8'), cipher.final(), cipher.getAuthTag()])
  return ['v1', sealingKeyId(sealing[0]), Buffer.from(iv).toString('base64url'), body.toString('base64url')].join('.')
}

/** Whether the first sealing key sealed it. */
export function isSealedByFirst(sealed: string, sealing: SealingKeys): boolean {
  return sealed.split('.')[1] === sealingKeyId(sealing[0])
}

/** Opens a sealed key. Returns null if no sealing key fits, the text was not sealed for that version, or the sealed key was erased. */
export function open(sealed: string | null, versionId: string, sealing: SealingKeys): string | null {
  const [version, id, iv, body] = (sealed ?? '').split('.')
  const key = sealing.find((candidate) => sealingKeyId(candidate) === id)
  if (version !== 'v1' || !key || !iv || !body) return null
  const bytes = Buffer.from(body, 'base64url')
  try {
    const decipher = createDecipheriv('aes-256-gcm', key, Buffer.from(iv, 'base64url'))
    decipher.setAAD(Buffer.from(versionId))
    decipher.setAuthTag(bytes.subarray(-16))
    return Buffer.concat([decipher.update(bytes.subarray(0, -16)), decipher.final()]).toString('utf8')
  } catch {
    return null
  }
}

/** Authenticates a Secret that we wrote: HMAC-SHA256 under the sealing key over uid, revision and key, lower-case hex. */
export function secretMac(versionId: string, key: string, sealing: SealingKeys): string {
  return createHmac('sha256', sealing[0]).update(`${versionId}\n${key}`).digest('hex')
}

/** Verifies `secretMac` under any of the sealing keys, in constant time. */
export function verifySecretMac(mac: string, versionId: string, key: string, sealing: SealingKeys): boolean {
  const given = Buffer.from(mac, 'hex')
  return sealing.some((candidate) => {
    const expected = Buffer.from(secretMac(versionId, key, [candidate]), 'hex')
    return given.length === expected.length && timingSafeEqual(given, expected)
  })
}

const KEYS: Record<Api, string> = { media: 'Media API keys', coding: 'Coding Plan API keys' }

/** The failure of a key at an address that takes the keys of `api`, which is the other product. */
export function wrongProduct(api: Api): Failure {
  return new Failure('wrong_product', { message: `This API key belongs to the other product. This address takes ${KEYS[api]}.` })
}

/** Why a key version cannot be used at `now`, or null if it can. A suspended key is known but not usable. */
export function refusal(key: KeyVersion, now: number): 'invalid_api_key' | 'key_suspended' | null {
  if (key.state !== 'active' && key.state !== 'suspended') return 'invalid_api_key'
  if (key.expiresAt !== null && now >= key.expiresAt) return 'invalid_api_key'
  if (key.overlapUntil !== null && now >= key.overlapUntil) return 'invalid_api_key'
  return key.state === 'suspended' ? 'key_suspended' : null
}

/**
 * Encryption of the ids of upstreams. An id may name its vendor, so clients get every id encrypted and in OpenAI's shape; when a client
 * replays one, the upstream gets its own id back. Nothing is stored: every process with the derived keys (`src/domain/derived-keys.ts`) can decrypt. An id is bound to its
 * subscription, so that no other tenant can replay it.
 */
import { createCipheriv, createDecipheriv, createHmac, randomUUID } from 'node:crypto'
import { Failure } from '../../domain/errors.ts'
import { openRecentIds } from './recent-ids.ts'

/** The ids of one request, and what it replays that only one upstream can read. */
export type Ids = {
  /** The upstream's id as the client sees it. The prefix of its first occurrence is kept; a long id of a call is sealed each time. */
  encrypt(prefix: string, id: string): string
  /** The upstream's id, or the same text if it was not encrypted for this subscription. Throws `invalid_request` for too many in one request. */
  decrypt(id: string): string
  /** Encrypts what only the upstream can read that answers now, whose `origin` is set before. The client cannot tell from it which one that is. */
  seal(prefix: Sealed, text: string): string
  origin: string
  /** Whether the upstream with this `origin` gave what was sealed. True for what earlier releases sealed, which does not tell. */
  isFrom(origin: string, sealed: string): boolean
  /** Replayed ids of calls that some servers refuse for their length, and what they were sealed as; null if no upstream gave one. */
  readonly longCalls: Map<string, string | null>
  /** The opened parts of the conversation that only the upstream can read that gave them, in order, and what they were sealed as. */
  readonly opened: Map<object, string>
  /** Stands for a name of an end user or a cache. The same for every request of the subscription, and for no other one. */
  pseudonym(name: string): string
  /** A new id where the upstream gave none. */
  fresh(prefix: string): string
}

/** What an answer needs of them. */
export type SealingIds = Pick<Ids, 'encrypt' | 'seal' | 'fresh'>

/** Of the ids of calls. */
const CALLS = ['call_', 'toolu_']
const PREFIX = /^(?:chatcmpl-|[a-z]{2,8}_)/
/**
 * What is sealed: the content of a reasoning item, the signature of thinking, a call with its `extra_content` or a long id, the reasoning of
 * another wire.
 */
export type Sealed = 'enc' | 'sig' | 'call' | 'seal'
/** Four letters behind the prefix tell the origin to those who have the key. Earlier releases read over them. */
const SIGNED = /^(?:enc|sig|call|seal)([a-z]{4})_/
const LETTERS = 26
const SHORTEST = 11
/** Searched for, because a pattern that matches megabytes of a class of characters overflows the stack of the regular expression. */
const NOT_BASE64URL = /[^A-Za-z0-9_-]/
const TAG_BYTES = 8
/** Ids are padded to a multiple of this many bytes: the length of an id can tell whose it is. */
const STEP = 32
const PADDING = '\0'
/** Ids repeat in every event of a stream, so a request caches this many. */
const MAX_CACHED_IDS = 256
/** Sealed reasoning is longer and does not repeat. */
const MAX_CACHED_LENGTH = 512

/** Each takes microseconds of the process, and a body of 32 MiB may have half a million ids. A conversation that fills any context window has fewer than this many. */
const MAX_DECRYPTED = 25_000

type Key = { mac: Buffer; cipher: Buffer }

/**
 * The first of `secrets`, of 48 bytes, encrypts, all decrypt, so that they can be rotated. Encryption is deterministic: the tag is an HMAC over subscription
 * and id, and also the counter block under which the id is encrypted (the construction of AES-SIV, RFC 5297, with a shorter tag).
 */
export function openIds(
  secrets: readonly [Buffer, ...Buffer[]],
  // Node caches random data for UUIDs; randomBytes calls the system each time.
  uuid: () => string = randomUUID,
): (subscription: string) => Ids {
  const keys = secrets.map((bytes) => ({ mac: bytes.subarray(0, 32), cipher: bytes.subarray(32) })) as [Key, ...Key[]]
  const encrypted = openRecentIds()
  const decrypted = openRecentIds()
  return (subscription) => {
    const cached = new Map<string, string>()
    let count = 0
    const ids: Ids = {
      encrypt(prefix, id) {
        // All of a length, so that the length tells no more.
        if (CALLS.includes(prefix) && Buffer.byteLength(id) > STEP) return ids.seal('call', id)
        const known = cached.get(id)
        if (known !== undefined) return known
        const given = prefix + encrypted.get(subscription, id, () => encryptId(keys[0], subscription, id))
        if (cached.size < MAX_CACHED_IDS && id.length <= MAX_CACHED_LENGTH) cached.set(id, given)
        return given
      },
      decrypt(id) {
        const body = bodyOf(id)
        return body === null
          ? id
          : decrypted.get(subscription, id, () => {
              if (++count > MAX_DECRYPTED)
                throw new Failure('invalid_request', {
                  message: `A conversation may refer to ${MAX_DECRYPTED.toLocaleString('en')} calls and items of earlier answers. Shorten it.`,
                })
              return decryptWithAny(keys, subscription, body) ?? id
            })
      },
      seal(prefix, text) {
        const body = encryptId(keys[0], subscription, text)
        return `${prefix}${originSign(keys[0], subscription, ids.origin, body)}_${body}`
      },
      origin: '',
      isFrom(origin, sealed) {
        const [prefix, sign] = SIGNED.exec(sealed) ?? []
        if (prefix === undefined) return true
        const body = sealed.slice(prefix.length)
        return keys.some((key) => originSign(key, subscription, origin, body) === sign)
      },
      longCalls: new Map(),
      opened: new Map(),
      pseudonym: (name) => createHmac('sha256', keys[0].mac).update(`pseudonym\0${subscription}\0${name}`).digest('base64url'),
      fresh: (prefix) => prefix + uuid().replaceAll('-', ''),
    }
    return ids
  }
}

/** What follows the prefix of an id that we may have encrypted. */
function bodyOf(id: string): string | null {
  const prefix = PREFIX.exec(id)?.[0]
  if (prefix === undefined) return null
  const body = id.slice(prefix.length)
  return body.length < SHORTEST || NOT_BASE64URL.test(body) ? null : body
}

function tagOf(key: Key, subscription: string, id: string): Buffer {
  return createHmac('sha256', key.mac).update(`${subscription}\0${id}`).digest().subarray(0, TAG_BYTES)
}

/** Another one for each text, so that clients cannot tell upstreams apart. */
function originSign(key: Key, subscription: string, origin: string, body: string): string {
  const mac = createHmac('sha256', key.mac)
    .update(`origin\0${subscription}\0${origin}\0${body.slice(0, TAG_BYTES * 2)}`)
    .digest()
  return String.fromCharCode(...[...mac.subarray(0, 4)].map((byte) => 97 + (byte % LETTERS)))
}

function counterOf(tag: Buffer): Buffer {
  return Buffer.concat([tag, Buffer.alloc(16 - TAG_BYTES)])
}

function encryptId(key: Key, subscription: string, id: string): string {
  const tag = tagOf(key, subscription, id)
  const cipher = createCipheriv('aes-128-ctr', key.cipher, counterOf(tag))
  const length = Buffer.byteLength(id)
  const padded = id + PADDING.repeat(Math.ceil(length / STEP) * STEP - length)
  return Buffer.concat([tag, cipher.update(padded, 'utf8'), cipher.final()]).toString('base64url')
}

function decryptWithAny(keys: Key[], subscription: string, body: string): string | null {
  for (const key of keys) {
    const plain = decryptId(key, subscription, body)
    if (plain !== null) return plain
  }
  return null
}

function decryptId(key: Key, subscription: string, body: string): string | null {
  const bytes = Buffer.from(body, 'base64url')
  const tag = bytes.subarray(0, TAG_BYTES)
  if (bytes.length <= TAG_BYTES) return null
  const decipher = createDecipheriv('aes-128-ctr', key.cipher, counterOf(tag))
  const padded = Buffer.concat([decipher.update(bytes.subarray(TAG_BYTES)), decipher.final()])
  let end = padded.length
  while (end > 0 && padded[end - 1] === 0) end--
  const id = padded.toString('utf8', 0, end)
  return tagOf(key, subscription, id).equals(tag) ? id : null
}

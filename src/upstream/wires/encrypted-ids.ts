/**
 * Ids that upstreams made, as clients see them. An id may name whoever made it, so every one is encrypted under a key of ours and looks
 * like OpenAI's; when the client replays it, the upstream gets its own id back. Nothing is stored: any process with the key can map back.
 * An id is bound to the subscription that got it, so that nobody can replay another's.
 */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomUUID } from 'node:crypto'

/** The ids of one request. */
export type Ids = {
  /** The upstream's id as the client sees it. The first prefix that an id was seen under stays. */
  out(prefix: string, id: string): string
  /** What the upstream called it, or the same text if we did not make it for this subscription. */
  back(id: string): string
  /** An id for what the upstream gave none. */
  fresh(prefix: string): string
}

const OURS = /^(?:chatcmpl-|[a-z]{2,8}_)([A-Za-z0-9_-]{11,})$/
const TAG_BYTES = 8
/** Ids repeat in every event of a stream; more different ones than this are mapped again each time. */
const REMEMBERED = 256

type Key = { mac: Buffer; cipher: Buffer }

/**
 * Makes the mapping. The first of `secrets` maps, all map back, so that they can be rotated. The mapping is deterministic: the tag is an
 * HMAC over subscription and id, and also the counter block under which the id is encrypted (the construction of AES-SIV, RFC 5297, with a
 * shorter tag).
 */
export function openIds(
  secrets: readonly [Buffer, ...Buffer[]],
  // Node keeps randomness for many UUIDs at hand; bytes are asked of the system each time.
  uuid: () => string = randomUUID,
): (subscription: string) => Ids {
  const keys = secrets.map(derive) as [Key, ...Key[]]
  return (subscription) => {
    const seen = new Map<string, string>()
    return {
      out(prefix, id) {
        const known = seen.get(id)
        if (known !== undefined) return known
        const mapped = prefix + encrypt(keys[0], subscription, id)
        if (seen.size < REMEMBERED) seen.set(id, mapped)
        return mapped
      },
      back(id) {
        const body = OURS.exec(id)?.[1]
        if (body === undefined) return id
        for (const key of keys) {
          const plain = decrypt(key, subscription, body)
          if (plain !== null) return plain
        }
        return id
      },
      fresh: (prefix) => prefix + uuid().replaceAll('-', ''),
    }
  }
}

function derive(secret: Buffer): Key {
  const bytes = Buffer.from(hkdfSync('sha256', secret, '', 'tollgate upstream ids', 48))
  return { mac: bytes.subarray(0, 32), cipher: bytes.subarray(32) }
}

function tagOf(key: Key, subscription: string, id: string): Buffer {
  return createHmac('sha256', key.mac).update(`${subscription}\0${id}`).digest().subarray(0, TAG_BYTES)
}

function counterOf(tag: Buffer): Buffer {
  return Buffer.concat([tag, Buffer.alloc(16 - TAG_BYTES)])
}

function encrypt(key: Key, subscription: string, id: string): string {
  const tag = tagOf(key, subscription, id)
  const cipher = createCipheriv('aes-128-ctr', key.cipher, counterOf(tag))
  return Buffer.concat([tag, cipher.update(id, 'utf8'), cipher.final()]).toString('base64url')
}

function decrypt(key: Key, subscription: string, body: string): string | null {
  const bytes = Buffer.from(body, 'base64url')
  const tag = bytes.subarray(0, TAG_BYTES)
  if (bytes.length <= TAG_BYTES) return null
  const decipher = createDecipheriv('aes-128-ctr', key.cipher, counterOf(tag))
  const id = Buffer.concat([decipher.update(bytes.subarray(TAG_BYTES)), decipher.final()]).toString('utf8')
  return tagOf(key, subscription, id).equals(tag) ? id : null
}

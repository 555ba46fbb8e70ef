import t from 'tap'
import { hashKey, mint, open, parseSealingKeys, refusal, seal, secretMac, shownPrefix, verifySecretMac, wellFormed, type KeyVersion, type SealingKeys } from '../../src/domain/api-keys.ts'

const random = (byte: number) => new Uint8Array(32).fill(byte)
const sealing = (byte: number): SealingKeys => [Buffer.alloc(32, byte)]

t.test('a key has the brand, 43 base62 characters of randomness and 6 of checksum', async (t) => {
  for (const byte of [0, 1, 127, 255]) t.match(mint('svc', random(byte)), /^svc_live_[0-9A-Za-z]{49}$/)
  t.not(mint('svc', random(1)), mint('svc', random(2)))
  t.throws(() => mint('svc', new Uint8Array(16)), RangeError)
})

t.test('a key with one character changed is known to be none, offline', async (t) => {
  const key = mint('svc', random(7))
  t.ok(wellFormed(key))
  for (let at = 9; at < key.length; at++) {
    const changed = key.slice(0, at) + (key[at] === 'x' ? 'y' : 'x') + key.slice(at + 1)
    t.notOk(wellFormed(changed), `changed at ${at}`)
  }
  for (const text of ['', 'svc_live_', `${key} `, key.slice(1), key.replace('svc', 'SVC'), 'sk-123']) t.notOk(wellFormed(text), text)
})

t.test('a sealed key opens under its own version and sealing key only', async (t) => {
  const key = mint('svc', random(3))
  const sealed = seal(key, 'uid-0', sealing(1), new Uint8Array(12).fill(9))
  t.notMatch(sealed, key)
  t.equal(open(sealed, 'uid-0', sealing(1)), key)
  t.equal(open(sealed, 'uid-1', sealing(1)), null, 'another version')
  t.equal(open(sealed, 'uid-0', sealing(2)), null, 'another sealing key')
  t.equal(open(sealed, 'uid-0', [Buffer.alloc(32, 2), Buffer.alloc(32, 1)]), key, 'a rotated sealing key still opens')
  for (const broken of ['', 'v1', sealed.slice(0, -2), `v2${sealed.slice(2)}`]) t.equal(open(broken, 'uid-0', sealing(1)), null)
})

t.test('the proof that we wrote a Secret holds for that version and key alone', async (t) => {
  const mac = secretMac('uid-0', 'key', sealing(1))
  t.ok(verifySecretMac(mac, 'uid-0', 'key', sealing(1)))
  t.ok(verifySecretMac(mac, 'uid-0', 'key', [Buffer.alloc(32, 2), Buffer.alloc(32, 1)]))
  t.notOk(verifySecretMac(mac, 'uid-0', 'other', sealing(1)))
  t.notOk(verifySecretMac(mac, 'uid-1', 'key', sealing(1)))
  t.notOk(verifySecretMac('', 'uid-0', 'key', sealing(1)))
})

t.test('a sealing key file holds 32 bytes in base64 on each line, or nothing is taken from it', async (t) => {
  const line = Buffer.alloc(32, 5).toString('base64')
  t.equal(parseSealingKeys(`${line}\n${line}\n\n`)?.length, 2)
  for (const text of ['', '\n', 'short', `${line}\nshort`, Buffer.alloc(31).toString('base64')]) t.equal(parseSealingKeys(text), null)
})

t.test('a version of a key is refused by its state and its times', async (t) => {
  const key: KeyVersion = {
    id: 'u-0', keyId: 'u', revision: 0, tenant: 'demo', name: 'k', subscription: 'demo/p', product: 'Coding', hash: hashKey('x'), sealed: '',
    prefix: shownPrefix(mint('svc', random(1))), state: 'active', cap: null, issuedAt: 0, expiresAt: null, endedAt: null, overlapUntil: null, secretName: null, tell: [],
  }
  t.equal(refusal(key, 10), null)
  t.equal(refusal({ ...key, state: 'pending' }, 10), 'invalid_api_key')
  t.equal(refusal({ ...key, state: 'revoked' }, 10), 'invalid_api_key')
  t.equal(refusal({ ...key, state: 'deleted' }, 10), 'invalid_api_key')
  t.equal(refusal({ ...key, state: 'suspended' }, 10), 'key_suspended')
  t.equal(refusal({ ...key, state: 'suspended', expiresAt: 10 }, 10), 'invalid_api_key', 'expired goes before suspended')
  t.equal(refusal({ ...key, expiresAt: 11 }, 10), null)
  t.equal(refusal({ ...key, overlapUntil: 10 }, 10), 'invalid_api_key')
})

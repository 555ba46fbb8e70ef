import { KEPT_REQUESTS, type CodingRequest } from '../../../src/domain/coding-requests.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { T0 } from './acme.ts'

const request = (id: string, at: number, more: Partial<CodingRequest> = {}): CodingRequest => ({
  id,
  subscription: 'acme/coder',
  keyId: 'key-1',
  at: T0 + at,
  durationMs: 40,
  status: 200,
  code: null,
  isComplete: true,
  usage: { input: 10, cachedInput: 4, output: 6 },
  charged: 13,
  ...more,
})

export const codingRequestPromises: Promises<Place> = {
  'coding requests are listed by plan, the newest first, page by page, and each once however often it is written': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.same(await store.requests('acme/coder', null, 10), [])
    const failed = request('c', 20, { status: 502, code: 'upstream_error', usage: null, charged: null, isComplete: false })
    await store.logRequests([request('a', 10), failed, request('b', 20), request('z', 30, { subscription: 'acme/other' })])
    await other.logRequests([request('a', 10, { status: 500 }), request('d', 5)])
    await other.logRequests([])
    t.same(await store.requests('acme/coder', null, 3), [failed, request('b', 20), request('a', 10)])
    t.same((await store.requests('acme/coder', request('b', 20), 3)).map(({ id }) => id), ['a', 'd'])
    t.same((await other.requests('acme/other', null, 3)).map(({ id }) => id), ['z'])
  },

  'of each plan the newest thousand coding requests are kept': async (t, place) => {
    const store = await place.open()
    await store.logRequests([request('other', 0, { subscription: 'acme/other' })])
    const many = Array.from({ length: KEPT_REQUESTS }, (_none, n) => request(`n${String(n).padStart(4, '0')}`, 100))
    await store.logRequests(many)
    await store.logRequests([request('older', 50), request('newer', 150)])
    const kept = await store.requests('acme/coder', null, KEPT_REQUESTS + 10)
    t.same([kept.length, kept[0]?.id, kept.at(-1)?.id], [KEPT_REQUESTS, 'newer', 'n0001'])
    t.equal((await store.requests('acme/other', null, 10)).length, 1)
  },

  'coding requests of before are counted and removed in batches, those of every plan': async (t, place) => {
    const store = await place.open()
    await store.logRequests([request('a', 10), request('b', 20), request('z', 15, { subscription: 'gone/coder' })])
    t.equal(await store.requestsBefore(T0 + 20), 2)
    t.equal(await store.removeRequests(T0 + 20, 1), 1, 'as many as were asked for')
    t.equal(await store.removeRequests(T0 + 20, 10), 1)
    t.same([await store.requestsBefore(T0 + 20), await store.removeRequests(T0 + 20, 10)], [0, 0])
    t.same([(await store.requests('acme/coder', null, 10)).map(({ id }) => id), await store.requests('gone/coder', null, 10)], [['b'], []])
  },
}

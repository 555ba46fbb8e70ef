/** What becomes of a reservation whose writes fail: its admission, or an extension. */
import { EventEmitter } from 'node:events'
import t from 'tap'
import { openAdmission } from '../../plugins/metering/admission.ts'
import { openInFlight, type InFlight } from '../../plugins/metering/in-flight.ts'
import { openGrowth } from '../../plugins/metering/reservation-growth.ts'
import { openSettlements } from '../../plugins/metering/settlement.ts'
import type { Write } from '../../src/backends/store/queued-command.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import { AdmissionWrite } from '../../src/upstream/usage/admission-write.ts'

const failure = new Unavailable('store', new Error('no answer came'))
const turn = () => new Promise((resolve) => setImmediate(resolve))

/** Settles a request with this admission, and returns the subscriptions whose records are read again later. */
async function readAgain(durable: Promise<void>): Promise<string[]> {
  const read: string[] = []
  await settle(durable, null, read)
  return read
}

async function settle(durable: Promise<void>, settlement: Settlement | null, read: string[], { change = async () => ({ outcome: 'already' }), inFlight = openInFlight() }: { change?: () => Promise<unknown>; inFlight?: InFlight } = {}) {
  const response = new EventEmitter()
  const { open, stop } = openSettlements({
    store: { change: change as never, decideNow: () => null },
    clock: () => 0,
    pause: turn,
    inFlight,
    unknown: { add: (subscription) => void read.push(subscription), release: async () => 0 },
    queue: { isFree: () => true, admit: async (_request, attempt) => attempt(), notify() {} },
    metrics: new Proxy({}, { get: () => () => {} }) as never,
  })
  const request = { log: { warn() {}, error() {} }, span: { run: (work: () => unknown) => work() }, logged: null } as unknown as Parameters<typeof open>[1]
  const admission = { id: 'a', subscription: 'acme/coder', admitted: { outcome: 'admitted', reserved: 100 }, write: AdmissionWrite.of(durable) } as Parameters<typeof open>[0]
  open(admission, request, { raw: Object.assign(response, { closed: false, destroyed: false }) as never }).settleWith(Promise.resolve(settlement))
  response.emit('close')
  for (let turns = 0; turns < 5; turns++) await turn()
  return stop
}

t.test('after an admission that could not be stored, its record is read again: the write may still take effect', async (t) => {
  t.same(await readAgain(Promise.reject(failure)), ['acme/coder'])
  t.same(await readAgain(Promise.resolve()), [])
})

t.test('a request whose charge could not be written until the end stays in flight, so that it is not released', async (t) => {
  for (const [usage, left] of [[5, true], [null, false]] as const) {
    const inFlight = { ...openInFlight(), drained: async () => false }
    inFlight.add('a')
    const stop = await settle(Promise.resolve(), { usage, estimated: false } as unknown as Settlement, [], { change: () => Promise.reject(failure), inFlight })
    t.equal(await stop(), false)
    for (let turns = 0; turns < 5; turns++) await turn()
    t.equal(inFlight.has('a'), left)
  }
})

t.test('after a refusal whose write was lost, the record is read again: what was refused may be reserved by now', async (t) => {
  const read: string[] = []
  const writes: Write[] = []
  const { admitNow } = openAdmission({
    store: { decideNow: (_id: string, _command: unknown, _now: number, write: Write) => (writes.push(write), { outcome: 'session_full' }) },
    clock: () => 0,
    uuid: () => 'a',
    instance: 'i',
    inFlight: openInFlight(),
    unknown: { add: (subscription: string) => void read.push(subscription), release: async () => 0 },
    queue: { isFree: () => true },
  } as never)
  const caller = { key: { subscription: 'acme/coder', keyId: 'k' }, creatingNow: (run: (owner: string, facts: object) => unknown) => run('acme/coder', {}) }
  for (let i = 0; i < 2; i++) t.equal(admitNow(caller as never, { promptBytes: 1, maxOutputTokens: null }, {} as never, () => failure), null)
  writes[0]?.stored()
  t.same(read, [])
  writes[1]?.lost(failure)
  t.same(read, ['acme/coder'])
})

t.test('an extension that failed is tried again after a thousand further tokens', async (t) => {
  const asked: number[] = []
  let fails = true
  const { cover, reserved } = openGrowth(100, async (tokens) => {
    asked.push(tokens)
    if (fails) throw failure
    return tokens
  }, () => {})
  const covered = async (tokens: number) => {
    cover(tokens, () => {})
    await turn()
    return reserved()
  }
  t.equal(await covered(150), 100)
  fails = false
  t.equal(await covered(1_150), 100, 'not at once')
  t.equal(await covered(1_151), 1_151)
  t.same(asked, [200, 1_151])
})

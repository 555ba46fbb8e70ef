/** Callers that are told of a write, where one of them throws. */
import t from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import { admit, ID, plan, T0 } from '../../contracts/store/acme.ts'

for (const outcome of ['stored', 'lost'] as const) {
  t.test(`a caller that throws when its write is ${outcome} is an uncaught error, and all others of the write are told`, async (t) => {
    const replaced: (() => unknown)[] = []
    const records: VersionedRecords = {
    unstored: () => [],
      read: async () => null,
      async replace() {
        await replaced.shift()?.()
        return 'replaced'
      },
    }
    let now = 0
    const { change, decideNow } = openChanges(records, { isSole: true, clock: () => now, pause: async () => {}, retryForMs: 1000 })
    await change(ID, plan(), T0)
    const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    replaced.push(() => (begun.resolve(), mayEnd.promise))
    const running = change(ID, admit('r0', 10), T0)
    await begun.promise
    const uncaught = t.capture(globalThis, 'queueMicrotask')
    const told: string[] = []
    const done = Promise.withResolvers<void>()
    const write = (name: string) => ({ stored: () => tell(name, 'stored'), lost: () => tell(name, 'lost') })
    function tell(name: string, how: string): void {
      told.push(`${name} ${how}`)
      if (name === 'r3') done.resolve()
      if (name === 'r1') throw new Error('thrown by r1')
    }
    for (const name of ['r1', 'r2', 'r3']) t.match(decideNow(ID, admit(name, 10), T0, write(name)), { outcome: 'admitted' })
    if (outcome === 'lost')
      replaced.push(() => {
        now = 1000
        throw new Unavailable('store', new Error('no answer came'))
      })
    mayEnd.resolve()
    await done.promise
    await running
    t.same(told, ['r1', 'r2', 'r3'].map((name) => `${name} ${outcome}`))
    const [call] = uncaught()
    t.throws(call?.args[0] as () => void, { message: 'thrown by r1' })
  })
}

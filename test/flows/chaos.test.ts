import t from 'tap'
import { seeded } from '../contracts/store/acme.ts'
import { missing } from '../servers/client.ts'
import { KAFKA_NAMES } from '../servers/kafka.ts'
import { MONGODB_NAMES } from '../servers/mongodb.ts'
import { chaos } from './chaos.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'
import { openDistributed, openEmbedded, type OpenSystem } from './systems.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

const SIDES: { name: string; servers: string[]; open: OpenSystem; /** As many as targets: each is killed once and frozen once. */ kills: number }[] = [
  { name: 'embedded', servers: [], open: openEmbedded, kills: 1 },
  { name: 'distributed', servers: [...MONGODB_NAMES, ...KAFKA_NAMES], open: openDistributed, kills: 7 },
]

t.test('kills and freezes of every role and server under load lose nothing that was answered with a 2xx, and make and charge every task once', { timeout: SIDE_TIMEOUT_MS }, async (t) => {
  for (const { name, servers, open, kills } of SIDES) {
    t.test(name, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
      if (missing(t, servers)) return
      // The times of the faults follow a fixed sequence; what they interrupt depends on the machine, on purpose.
      const random = seeded(7)
      const { faults, accepted, answered, ended, verified } = await chaos({ open, kills, random, tell: (line) => t.comment(line) })
      t.same(faults, [])
      t.ok(accepted > 0 && answered > 0, `${accepted} tasks (${JSON.stringify(ended)}) and ${answered} chats; ${verified}`)
    })
  }
})

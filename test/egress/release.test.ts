/** What a request leaves behind in memory. */
import { queryObjects } from 'node:v8'
import t from 'tap'
import { Client } from 'undici'
import { openEgress } from '../../src/egress/egress.ts'
import { eventually } from '../flows/eventually.ts'
import { openReceiver } from '../fakes/receiver.ts'

const REQUESTS = 20
/** Counts the clients that are reachable, after a collection. */
const clients = () => queryObjects(Client, { format: 'count' }) as unknown as number

t.test('a request under the signal of a process leaves no client and no socket behind', async (t) => {
  const receiver = await openReceiver(t)
  const egress = openEgress({ allow: ['127.0.0.1/32'], clock: () => 0 })
  const { signal } = new AbortController()
  const post = () => egress.request({ url: `${receiver.url}/hook`, method: 'POST', body: '{}', deadlineMs: 60_000, maxBytes: 20_000, over: 'cut', redirects: 0, signal })
  t.match(await post(), { outcome: 'answered', status: 204 })
  const before = clients()
  for (let n = 0; n < REQUESTS; n++) t.match(await post(), { outcome: 'answered', status: 204 })
  await eventually('the collection of the clients', async () => (clients() < before + REQUESTS / 2 ? true : null))
  t.equal(signal.aborted, false)
})

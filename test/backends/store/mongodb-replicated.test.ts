import t from 'tap'
import { runContract } from '../../contracts/run-contract.ts'
import { storePromises } from '../../contracts/store.ts'
import { asIfReplicated } from '../../contracts/store/replicated.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { emptyDatabase } from './empty-store.ts'

t.test('MongoDB keeps the store contract as if it were replicated', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const { place } = await emptyDatabase(t, server)
  await runContract(t, storePromises, async (t) => asIfReplicated(await place(t), 1), {
    'one handle applies commands in the order of their calls': 'calls alternate between two handles',
  })
})

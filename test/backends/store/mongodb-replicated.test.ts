import { runContract } from '../../contracts/run-contract.ts'
import t from 'tap'
import { storePromises } from '../../contracts/store.ts'
import { asIfReplicated } from '../../contracts/store/replicated.ts'
import { onMongodb } from './empty-store.ts'

t.test('MongoDB keeps the store contract as if it were replicated', onMongodb(async (t, { place }) => {
  await runContract(t, storePromises, async (t) => asIfReplicated(await place(t), 1), {
    'one handle applies commands in the order of their calls': 'calls alternate between two handles',
  })
}))
